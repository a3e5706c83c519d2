"""A manifest comes back as it was, or is refused with the reason."""

import json
import math
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dflash_lightning.checkpoint.manifest import SCHEMA_VERSION, DataFile, Manifest, Part, _digest
from dflash_lightning.checkpoint.versions import versions

NAME = "step=8-1a2b3c4d"


def manifest(**changes):
    parts = (Part(0, 4, "0000000a"), Part(4, 3, "0000000b"))
    values = {
        "name": NAME,
        "serial": 3,
        "run_id": "a",
        "step": 8,
        "epoch": 1,
        "kind": "step",
        "created": 1_700_000_000.25,
        "files": (DataFile(f"data/{NAME}.ckpt", 7, "0000000c", parts),),
        "metrics": {"val/tau": 2.5},
        "monitor": "val/tau",
        "mode": "max",
        "facts": {"plan_digest": "d", "versions": {"torch": "2.13"}, "world_size": 2},
    }
    return Manifest(**(values | changes))


def changed(**changes):
    """The text of a manifest with other fields and the right digest."""
    body = json.loads(manifest().to_json()) | changes
    del body["digest"]
    return json.dumps({**body, "digest": _digest(body)}).encode()


def test_it_comes_back_as_it_was():
    again = Manifest.from_json(manifest().to_json())
    assert again == manifest()
    assert again.key == "manifests/step=000000000008-1a2b3c4d.json"
    assert again.size == 7
    assert pickle.loads(pickle.dumps(again)) == again


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_numbers_that_json_does_not_know_come_back(value):
    text = manifest(metrics={"loss": value}).to_json()
    json.loads(text, parse_constant=pytest.fail)  # plain JSON, readable by any program
    again = Manifest.from_json(text)
    assert str(again.metrics["loss"]) == str(value)
    assert again.value("loss") is None
    assert again.value("missing") is None
    assert again.value(None) is None


def test_secrets_do_not_get_in():
    text = manifest(
        run_id="AKIAABCDEFGHIJKLMNOP",
        facts={"endpoint": "https://me:pw@host/?X-Amz-Signature=abc", "versions": {"x": "session_token=tok"}},
    ).to_json()
    for secret in (b"AKIA", b"pw", b'abc"', b'tok"'):
        assert secret not in text
    assert Manifest.from_json(text).facts["endpoint"] == "https://***@host/?X-Amz-Signature=***"


def test_it_says_which_versions_wrote_it():
    found = versions()
    assert found["torch"] == torch.__version__.split("+")[0] or found["torch"] == torch.__version__
    assert {"python", "dflash-lightning", "lightning"} <= set(found)


@given(st.data())
def test_no_cut_and_no_changed_bit_gets_through(data):
    text = manifest().to_json()
    at = data.draw(st.integers(0, len(text) - 1))
    bit = data.draw(st.integers(0, 7))
    flipped = text[:at] + bytes([text[at] ^ 1 << bit]) + text[at + 1 :]
    for other in (text[:at], flipped):
        try:
            again = Manifest.from_json(other)
        except ValueError:
            continue
        assert again == manifest()  # white space only


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "it is no JSON, or was cut"),
        (b"\xff\xfe\x00", "it is no JSON"),
        (b"[" * 100_000, "it is no JSON"),
        (b"[1]", "the manifest must be dict in JSON"),
        (b"{}", "schema_version must be int in JSON, got 'None'"),
        (b'{"schema_version": true}', "schema_version must be int"),
        (b'{"schema_version": 1}', "does not have the digest"),
        (
            json.dumps({"schema_version": SCHEMA_VERSION + 1, "other": "form"}).encode(),
            "schema version 2, and this program knows 1 at most: use the version that wrote it",
        ),
        (changed(colour="red"), r"fields missing: \[\], unknown: \['colour'\]"),
        (changed(step=9), "its name step=8-1a2b3c4d and its step 9 differ"),
        (changed(step=-8), "step must be 0 or more, got -8"),
        (changed(step="8"), "step cannot be '8'"),
        (changed(epoch=True), "epoch cannot be 'True'"),
        (changed(name="step=08-1a2b3c4d"), "is not the name of a checkpoint"),
        (changed(name="../step=8"), "is not the name of a checkpoint"),
        (changed(mode="most"), "mode must be min or max, got 'most'"),
        (changed(metrics={"loss": "low"}), "metric loss cannot be 'low'"),
        (changed(files=[]), "its files are not data/step=8-1a2b3c4d alone"),
        (changed(files=[3]), "files must be dict in JSON"),
        (
            changed(files=[{"key": "owner.json", "size": 0, "crc32": "00000000", "parts": []}]),
            "its files are not data/step=8-1a2b3c4d alone",
        ),
        (
            changed(files=[{"key": f"data/{NAME}.ckpt", "size": 1, "crc32": "0", "parts": []}]),
            "crc32 must be 8 hex digits, got '0'",
        ),
        *(
            (
                changed(files=[{"key": f"data/{NAME}.ckpt", "size": 7, "crc32": "00000000", "parts": parts}]),
                reason,
            )
            for parts, reason in [
                ([], "the parts have 0 bytes, the file has 7"),
                ([[1, 6, "00000000"]], "parts must follow each other without gaps"),
                ([[0, 7]], "parts must follow each other without gaps"),
                ([[0, 7, "x"]], "crc32 must be 8 hex digits"),
                ([[0, 0, "00000000"]], "parts must follow each other"),
            ]
        ),
    ],
)
def test_what_is_no_manifest_is_refused_with_the_reason(text, reason):
    with pytest.raises(ValueError, match=reason):
        Manifest.from_json(text)
