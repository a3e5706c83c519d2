import json

import pytest

from dflash_lightning.target.stored.manifest import StatesManifest, lacking
from tests.target.stored.toys import identity, manifest


def test_a_manifest_read_back_is_equal(tmp_path):
    manifest(template="abc").write(tmp_path)
    assert StatesManifest.read_from(tmp_path) == manifest(template="abc")


@pytest.mark.parametrize(
    ("changes", "nbytes"),
    [
        ({"dtype": "bfloat16", "taps": (1, 9, 17, 25, 33), "final": False}, 5 * 64 * 2),
        ({"dtype": "float32", "taps": (1,), "final": True}, 2 * 64 * 4),
    ],
)
def test_bytes_of_a_token(changes, nbytes):
    assert manifest(**changes).token_bytes == nbytes


@pytest.mark.parametrize(
    ("there", "wanted", "reasons"),
    [
        ({}, {}, []),
        ({"taps": (1, 3, 5)}, {"taps": (5, 1)}, []),  # more than is wanted is fine
        ({"final": True}, {"final": False}, []),
        ({"taps": (1, 3)}, {"taps": (1, 4)}, ["tapped layers: [1, 3] there, [1, 4] in this run"]),
        ({"final": False}, {}, ["final states (for distillation): no there, yes in this run"]),
        (
            {"target": "a", "template": None},
            {"target": "b", "template": "x"},
            [
                "chat template: None there, x in this run",
                "target (digest of config and weights): a there, b in this run",
            ],
        ),
        ({"dtype": "bfloat16"}, {}, ["precision of the target: bfloat16 there, float32 in this run"]),
        ({"store": "y"}, {}, ["token store (digest of its content): y there, s in this run"]),
    ],
)
def test_what_a_folder_lacks_is_named_with_both_values(there, wanted, reasons):
    assert lacking(identity(**there), identity(**wanted)) == reasons


def test_a_folder_of_something_else_is_not_called_another_version(tmp_path):
    (tmp_path / "manifest.json").write_text(json.dumps({"version": 1, "rows": {}}))  # as a token store's
    with pytest.raises(ValueError, match=r"holds something else than hidden states: name the folder that"):
        StatesManifest.read_from(tmp_path)


def test_another_version_and_a_damaged_manifest_are_refused(tmp_path):
    manifest().write(tmp_path)
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": 0}))
    with pytest.raises(ValueError, match=r"another version of this project \(0, this one reads 1\)"):
        StatesManifest.read_from(tmp_path)
    path.write_text(path.read_text()[:20])
    with pytest.raises(ValueError, match="manifest.json is damaged"):
        StatesManifest.read_from(tmp_path)
