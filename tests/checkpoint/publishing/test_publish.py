"""Data, manifest, pointers, deletions: in this order, and nothing half done after a failure."""

import io
import json

import pytest
import torch

from dflash_lightning.checkpoint.job import Retention
from dflash_lightning.checkpoint.layout import BEST, LAST
from dflash_lightning.checkpoint.listing import list_manifests
from dflash_lightning.checkpoint.manifest import Manifest
from dflash_lightning.checkpoint.publishing.publish import publish
from dflash_lightning.checkpoint.stores import StoreError
from dflash_lightning.checkpoint.stores.fault_script import Fault
from dflash_lightning.checkpoint.stores.faults import FaultyStore
from dflash_lightning.checkpoint.stores.memory import MemoryStore
from tests.checkpoint.saving import PREFIX, content, job, keep, save, steps, writes


def pointed(store, which):
    return json.loads(store.read(f"{PREFIX}/{which}"))["step"]


def test_what_is_published_is_what_was_written():
    store = MemoryStore()
    published = save(store, 8, metrics={"loss": 2.0}, facts={"plan_digest": "d"})
    manifest = published.manifest
    assert store.read(f"{PREFIX}/{manifest.files[0].key}") == content(8)
    assert Manifest.from_json(store.read(f"{PREFIX}/{published.manifest_key}")) == manifest
    assert (manifest.step, manifest.size, manifest.metrics) == (8, 3000, {"loss": 2.0})
    assert published.uri == f"memory://memory/{PREFIX}/{manifest.name}"
    assert pointed(store, LAST) == 8
    assert store.pending == {}


def test_stock_torch_reads_the_data_file():
    store = MemoryStore()
    state = {"weight": torch.arange(6.0), "step": 3}
    published = publish(store, PREFIX, job(3), lambda file: torch.save(state, file))
    data = store.read(f"{PREFIX}/{published.manifest.files[0].key}")
    again = torch.load(io.BytesIO(data), weights_only=True)
    assert torch.equal(again["weight"], state["weight"])
    assert published.manifest.size == len(data)


def test_the_order_of_calls():
    store = FaultyStore(MemoryStore())
    save(store, 4)
    before = len(store.events)
    save(store, 8, retention=Retention(monitor="loss"), metrics={"loss": 1.0})
    calls = [(event.operation, event.key.split("/")[2]) for event in store.events[before:]]
    wanted = [
        ("finish", "data"),
        ("head", "data"),  # verified ...
        ("list", "manifests"),  # ... and told to be newer than what there is by now ...
        ("read", "manifests"),
        ("put", "manifests"),  # ... before it becomes a checkpoint ...
        ("read", "manifests"),  # ... which is read back
        ("put", LAST),
        ("put", BEST),
        ("delete", "manifests"),
        ("delete", "data"),
    ]
    assert [call for call in calls if call in wanted][-len(wanted) :] == wanted
    assert calls.index(("finish", "data")) < calls.index(("put", "manifests"))


def test_the_best_stays_and_is_pointed_at():
    store = MemoryStore()
    for step, loss in [(1, 3.0), (2, 1.0), (3, float("nan")), (4, 2.0)]:
        save(store, step, retention=Retention(monitor="loss"), metrics={"loss": loss})
    assert steps(store) == [2, 4]
    assert (pointed(store, BEST), pointed(store, LAST)) == (2, 4)


def test_serials_grow_even_after_going_back():
    store = MemoryStore()
    for step in (4, 8, 6):
        save(store, step, retention=keep())
    assert [(m.step, m.serial) for m in list_manifests(store, PREFIX).manifests] == [(6, 3), (8, 2), (4, 1)]


@pytest.mark.parametrize(
    "fault",
    [
        Fault("list", times=3),
        Fault("list", kind="denied"),
        Fault("open"),
        Fault("write", 2),
        Fault("finish"),
        Fault("finish", does="lose"),
        Fault("head"),
        Fault("write", 2, does="rot"),  # at rest other than what was sent
        Fault("write", 2, does="flip"),
        Fault("put", kind="denied", key="manifests"),
        Fault("put", does="lose", kind="denied", key="manifests"),
        Fault("put", does="rot", key="manifests", times=3),
    ],
    ids=lambda fault: f"{fault.operation}-{fault.does}-{fault.kind}",
)
def test_after_a_failure_nothing_of_it_is_left_and_the_last_one_stands(fault):
    inner = MemoryStore()
    save(inner, 4)
    before = dict(inner.objects)
    with pytest.raises(StoreError):
        save(FaultyStore(inner, fault), 8)
    assert inner.objects == before
    assert inner.pending == {}


@pytest.mark.parametrize(
    ("fault", "retries"),
    [
        (Fault("put", key="manifests"), 1),
        (Fault("put", key="manifests", times=2), 2),
        (Fault("put", key="manifests", does="lose"), 1),  # then "conflict", with ourselves
        (Fault("put", key="manifests", does="lose", kind="conflict"), 0),
        (Fault("read", key="manifests", does="flip"), 1),
        (Fault("list", times=2), 2),
    ],
)
def test_a_bad_answer_behind_the_upload_costs_no_upload(fault, retries):
    store = FaultyStore(MemoryStore(), fault)
    assert save(store, 8).retries == retries
    assert steps(store.store) == [8]
    assert sum(event.operation == "open" for event in store.events) == 1


def test_an_error_of_the_writer_aborts_the_upload():
    store = MemoryStore()

    def write(file):
        file.write(b"half")
        raise KeyError("not picklable")

    with pytest.raises(KeyError, match="not picklable"):
        publish(store, PREFIX, job(8), write)
    assert store.objects == store.pending == {}


def test_the_store_s_own_error_comes_through_torch_save():
    store = FaultyStore(MemoryStore(), Fault("write", 2, kind="denied"))
    with pytest.raises(StoreError, match="scripted: write of runs/a/data/step=8") as caught:
        publish(store, PREFIX, job(8), lambda file: torch.save({"x": torch.zeros(9)}, file))
    assert caught.value.kind == "denied"


def test_a_store_without_checksums_is_read_back():
    class Plain(MemoryStore):
        def _facts(self, key):
            facts = super()._facts(key)
            return type(facts)(facts.key, facts.size, facts.modified, None, None)

    store = FaultyStore(Plain(), Fault("write", 2, does="rot"))
    with pytest.raises(StoreError, match="differs from its manifest in bytes 0 to 3,000, 3 times over"):
        save(store, 8)
    assert store.store.objects == {}
    save(store, 9)
    assert steps(store) == [9]


@pytest.mark.parametrize("fault", [Fault("put", key=LAST), Fault("put", key=BEST)])
def test_a_pointer_that_fails_is_a_warning(fault, caplog):
    store = FaultyStore(MemoryStore(), fault)
    save(store.store, 4)
    published = save(store, 8, retention=Retention(monitor="loss"), metrics={"loss": 1.0})
    assert "step 8 is saved, but: scripted: put of runs/a/" in caplog.text
    assert "older checkpoints stay until the next save writes it" in caplog.text
    assert len(published.problems) == 1
    assert steps(store) == [4, 8]
    save(store, 9, retention=Retention(monitor="loss"), metrics={"loss": 2.0})
    assert steps(store) == [8, 9]
    assert (pointed(store, LAST), pointed(store, BEST)) == (9, 8)


def test_writes_of_any_size_give_the_same_manifest():
    whole, pieces = MemoryStore(), MemoryStore()
    first = publish(whole, "", job(1), lambda file: file.write(content(1)))
    second = publish(pieces, "", job(1), writes(1))
    assert first.manifest.files[0].parts == second.manifest.files[0].parts
