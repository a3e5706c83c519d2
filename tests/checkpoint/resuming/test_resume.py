"""Case 18: an address means the newest checkpoint that verifies; what is broken is skipped, and said."""

import json
import pickle

import pytest

from dflash_lightning.checkpoint.job import Retention
from dflash_lightning.checkpoint.layout import LAST
from dflash_lightning.checkpoint.resuming.resume import (
    NothingFound,
    Source,
    asks_for_newest_of,
    parse_source,
    resolve,
)
from dflash_lightning.checkpoint.stores import StoreError
from dflash_lightning.checkpoint.stores.fault_script import Fault
from dflash_lightning.checkpoint.stores.faults import FaultyStore
from dflash_lightning.checkpoint.stores.local import LocalStore
from dflash_lightning.checkpoint.stores.memory import MemoryStore
from tests.checkpoint.saving import PREFIX, keep, save

LOSSES = {4: 2.0, 8: 1.0, 12: 3.0}


@pytest.fixture
def store():
    """Steps 4, 8 and 12, of which 8 is the best."""
    store = MemoryStore()
    for step, loss in LOSSES.items():
        save(store, step, retention=keep(monitor="loss"), metrics={"loss": loss})
    return store


def key_of(store, step, kind="data"):
    return next(key for key in store.objects if f"/{kind}/step=" in key and _step(key) == step)


def _step(key):
    return int(key.rsplit("step=", 1)[1].split("-")[0])


@pytest.mark.parametrize(
    ("uri", "base", "which"),
    [
        ("s3://bucket/runs/a", "s3://bucket/runs/a", "last"),
        ("s3://bucket/runs/a/", "s3://bucket/runs/a", "last"),
        ("s3://bucket/runs/a/last", "s3://bucket/runs/a", "last"),
        ("s3://bucket/runs/a/newest/", "s3://bucket/runs/a", "newest"),
        ("s3://bucket/runs/a/best", "s3://bucket/runs/a", "best"),
        ("s3://bucket/runs/a/step=8", "s3://bucket/runs/a", "step=8"),
        ("s3://bucket/runs/a/step=8-1a2b3c4d", "s3://bucket/runs/a", "step=8-1a2b3c4d"),
        ("s3://bucket", "s3://bucket", "last"),
        ("s3://bucket/best", "s3://bucket", "best"),
        ("s3://best", "s3://best", "last"),  # a bucket of this name
        ("runs/a", "runs/a", "last"),
        ("runs/a/step=8", "runs/a", "step=8"),
        ("/runs/a/best", "/runs/a", "best"),
        ("/best", "/", "best"),
        ("best", ".", "best"),
        ("runs/a/epoch=1-step=8.ckpt", "runs/a/epoch=1-step=8.ckpt", None),
        ("file:///runs/a/best", "file:///runs/a", "best"),
    ],
)
def test_addresses(uri, base, which):
    assert parse_source(uri) == Source(base, which)


def test_a_file_stays_what_it_is_and_a_folder_called_last_as_well(tmp_path):
    (tmp_path / "weights.bin").touch()
    (tmp_path / "last" / "manifests").mkdir(parents=True)
    assert parse_source(f"{tmp_path}/weights.bin").which is None
    assert parse_source(f"{tmp_path}/last") == Source(f"{tmp_path}/last", "last")


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("s3://bucket/runs/a/step=eight", "ends with 'step=eight', which names no step: write step=8"),
        ("s3://bucket/runs/a/last.ckpt", "is one object, and only checkpoints with a manifest are fetched"),
    ],
)
def test_addresses_that_mean_nothing(uri, message):
    with pytest.raises(ValueError, match=message):
        parse_source(uri)


@pytest.mark.parametrize(
    ("which", "step"), [("last", 12), ("newest", 12), ("best", 8), ("step=4", 4), ("step=08", 8)]
)
def test_which(store, which, step):
    assert resolve(store, PREFIX, which).step == step


def test_one_of_two_saves_of_a_step(store):
    first = resolve(store, PREFIX, "step=8")
    again = save(store, 8, retention=keep()).manifest
    assert resolve(store, PREFIX, "step=8") == again
    assert resolve(store, PREFIX, first.name) == first


def test_last_is_what_was_published_last_also_after_going_back(store):
    save(store, 6, retention=keep())
    assert resolve(store, PREFIX).step == 6


@pytest.mark.parametrize("pointer", [b"{", b'{"manifest": "manifests/gone.json"}', None])
def test_pointers_are_hints_only(store, pointer):
    if pointer is None:
        store.delete([f"{PREFIX}/{LAST}"])
    else:
        store.put(f"{PREFIX}/{LAST}", pointer)
    assert resolve(store, PREFIX).step == 12


def cut(store):
    key = key_of(store, 12)
    store.objects[key] = store.objects[key][:-1]


def flip(store):
    key = key_of(store, 12)
    store.objects[key] = b"?" + store.objects[key][1:]


def lose(store):
    del store.objects[key_of(store, 12)]


def garbage(store):
    store.objects[key_of(store, 12, "manifests")] = b"{}"


def swap(store):
    """A manifest copied under another's name."""
    text = store.objects[key_of(store, 4, "manifests")]
    store.objects[key_of(store, 12, "manifests")] = text


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (cut, "has 2,999 bytes, its manifest says 3,000"),
        (flip, "its manifest says"),
        (lose, "is missing"),
        (garbage, "schema_version must be int in JSON, got 'None'"),
        (swap, "it is that of step=4-"),
    ],
)
def test_what_is_broken_is_skipped_with_the_reason(store, damage, reason, caplog):
    damage(store)
    assert resolve(store, PREFIX).step == 8
    assert "skipping memory://memory/runs/a/manifests/step=000000000012-" in caplog.text
    assert reason in caplog.text
    with pytest.raises(StoreError, match="no checkpoint at .*/step=12 can be used") as caught:
        resolve(store, PREFIX, "step=12")
    assert caught.value.kind == "corrupt"
    assert reason in str(caught.value)


def test_a_broken_best_is_replaced_by_the_second_best(store):
    skipped = []
    store.objects[key_of(store, 8)] = b""
    found = resolve(store, PREFIX, "best", on_skip=lambda uri, reason: skipped.append((uri, reason)))
    assert found.step == 4
    ((uri, reason),) = skipped
    assert uri.startswith("memory://memory/runs/a/manifests/step=000000000008-")
    assert "has 0 bytes" in reason


def test_a_bit_that_flips_on_the_way_down_breaks_nothing(store):
    faulty = FaultyStore(store, Fault("read", does="flip", key="manifests/step=000000000012"))
    assert resolve(faulty, PREFIX).step == 12


def test_a_store_that_does_not_answer_is_not_a_broken_checkpoint(store):
    for fault in (Fault("head", kind="endpoint"), Fault("read", kind="denied"), Fault("list")):
        with pytest.raises(StoreError, match="scripted"):
            resolve(FaultyStore(store, fault), PREFIX)


def test_all_broken_is_an_error_of_its_own(store):
    for key in [key for key in store.objects if "/data/" in key]:
        del store.objects[key]
    with pytest.raises(StoreError, match="no checkpoint at .* can be used: .*step=0*12.*step=0*8") as caught:
        resolve(store, PREFIX)
    assert not isinstance(caught.value, NothingFound)  # starting fresh would hide it


def test_an_empty_prefix_says_so():
    with pytest.raises(NothingFound, match="runs/a/last: nothing lies there; check the address") as caught:
        resolve(MemoryStore(), PREFIX)
    assert isinstance(pickle.loads(pickle.dumps(caught.value)), NothingFound)
    assert caught.value.kind == "missing"


@pytest.mark.parametrize(
    ("place", "uri", "same"),
    [
        ("s3://b/run", "s3://b/run", True),
        ("s3://b/run/", "s3://b/run/last", True),
        ("s3://b/run", "s3://b/run/newest", True),
        ("s3://b/run", "s3://b/run/best", False),
        ("s3://b/run", "s3://b/run/step=8", False),
        ("s3://b/run", "s3://b/runs/last", False),
        ("s3://b/run", "s3://c/run", False),
        ("runs/a", "./runs/a/last", True),
        ("file:///runs/a", "/runs/a", True),
        ("/runs/a", "/runs/b", False),
        ("/runs/a", "/runs/a.ckpt", False),
    ],
)
def test_whether_an_address_asks_for_the_newest_of_a_store(place, uri, same):
    assert asks_for_newest_of(place, uri) is same


@pytest.mark.parametrize("which", ["last", "step=4"])
def test_the_folder_around_a_store_leads_to_it(which):
    store = MemoryStore("bucket")
    store.put("runs/a/config.yaml", b"")
    save(store, 4, prefix="runs/a/store")
    with pytest.raises(
        NothingFound, match=rf"no checkpoint .*/runs/a/{which}: only .*; give .*/runs/a/store$"
    ):
        resolve(store, "runs/a", which)


def test_something_else_that_lies_there_is_named():
    store = MemoryStore()
    for number in range(7):
        store.put(f"{PREFIX}/epoch={number}.ckpt", b"")
    store.put("runs/ab/other", b"")
    with pytest.raises(NothingFound, match=r"only runs/a/epoch=0.ckpt, .*epoch=4.ckpt, and more lies there"):
        resolve(store, PREFIX)


def test_a_step_that_is_not_there_lists_those_that_are(store):
    with pytest.raises(StoreError, match="step=5; there are steps 4, 8, 12") as caught:
        resolve(store, PREFIX, "step=5")
    assert not isinstance(caught.value, NothingFound)
    garbage(store)
    with pytest.raises(StoreError, match="step=5; there are steps 4, 8$"):
        resolve(store, PREFIX, "step=5")


def test_the_best_is_that_of_the_newest_run(store):
    """A fresh run under an old prefix is not judged by the run that was there before."""
    save(store, 2, retention=keep(monitor="loss"), metrics={"loss": 9.0}, run_id="later")
    assert resolve(store, PREFIX, "best").step == 2
    assert json.loads(store.read(f"{PREFIX}/best.json"))["step"] == 2
    assert resolve(store, PREFIX, "last").step == 2


@pytest.mark.parametrize("metrics", [{}, {"loss": float("nan")}])
@pytest.mark.parametrize(("step", "way_out"), [(2, "step=8"), (8, r"step=8-[0-9a-f]{8}")])
def test_a_run_without_a_best_leads_to_that_of_the_run_before(store, metrics, step, way_out):
    """A step that the newer run has as well is called by its whole name."""
    before = resolve(store, PREFIX, "best")
    save(store, step, retention=keep(monitor="loss"), metrics=metrics, run_id="later")
    said = rf"none is best; the best of run a, which was there before, is memory://memory/runs/a/({way_out})$"
    with pytest.raises(ValueError, match=said) as caught:
        resolve(store, PREFIX, "best")
    assert resolve(store, PREFIX, str(caught.value).rpartition("/")[2]) == before


@pytest.mark.parametrize("metrics", [{}, {"loss": float("nan")}])
def test_no_best_without_a_finite_value(metrics):
    store = MemoryStore()
    save(store, 4, retention=Retention(monitor="loss"), metrics=metrics)
    with pytest.raises(
        ValueError, match="newest run there has a finite value .* resume from last or from a step$"
    ):
        resolve(store, PREFIX, "best")


def test_a_word_that_means_nothing(store):
    with pytest.raises(ValueError, match="'first' must be last, best, newest, step=8 or"):
        resolve(store, PREFIX, "first")


def test_more_than_a_page_of_manifests(store):
    newest = resolve(store, PREFIX)
    for number in range(1, 1002):
        store.put(f"{PREFIX}/manifests/step={number:012d}-{number:08x}.json", b"{")
    skipped = []
    assert resolve(store, PREFIX, on_skip=lambda uri, reason: skipped.append(uri)) == newest
    assert len(skipped) == 1001


def test_a_folder_that_holds_one_file_of_fetch_says_how_to_load_it(tmp_path):
    for name in (".step=4-1a2b3c4d.lock", "step=4-1a2b3c4d.ckpt"):
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(NothingFound) as caught:
        resolve(LocalStore(tmp_path), "")
    assert ".lock" not in str(caught.value)
    assert str(caught.value).endswith(f"to load that file, give its path: {tmp_path}/step=4-1a2b3c4d.ckpt")
