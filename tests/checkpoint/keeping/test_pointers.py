"""`last` and `best` mean one thing: as addresses, in a list, and in last.json and best.json."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dflash_lightning.checkpoint.job import Retention
from dflash_lightning.checkpoint.keeping.inventory import take_inventory
from dflash_lightning.checkpoint.keeping.pointers import FILES
from dflash_lightning.checkpoint.listing import list_manifests
from dflash_lightning.checkpoint.resuming.resume import resolve
from dflash_lightning.checkpoint.stores import StoreError
from dflash_lightning.checkpoint.stores.fault_script import Fault
from dflash_lightning.checkpoint.stores.faults import FaultyStore
from dflash_lightning.checkpoint.stores.memory import MemoryStore
from tests.checkpoint.saving import PREFIX, keep, save, steps

LOSSES = (1.0, 2.0, 3.0, math.nan, None)


def by_address(store, which):
    try:
        return resolve(store, PREFIX, which).name
    except ValueError:  # none is best
        return None


def by_list(store, which):
    return next((e.name for e in take_inventory(store, PREFIX).entries if which in e.pointers), None)


def by_file(store, which):
    """Raises KeyError for a pointer to what is gone."""
    names = {manifest.key: manifest.name for manifest in list_manifests(store, PREFIX).manifests}
    try:
        text = store.read(f"{PREFIX}/{FILES[which]}")
    except StoreError:
        return None
    return names[json.loads(text)["manifest"]]


@settings(max_examples=25, deadline=None)
@given(
    runs=st.lists(
        st.tuples(
            st.builds(
                Retention,
                keep_last=st.sampled_from([-1, 1, 2]),
                keep_best=st.sampled_from([0, 1]),
                monitor=st.sampled_from([None, "loss"]),
                mode=st.sampled_from(["min", "max"]),
            ),
            st.lists(st.sampled_from(LOSSES), min_size=1, max_size=4),
        ),
        min_size=1,
        max_size=3,
    )
)
def test_addresses_lists_and_files_agree_after_every_save_of_any_runs(runs):
    store = MemoryStore()
    for run, (retention, losses) in enumerate(runs):
        for step, loss in enumerate(losses):
            metrics = {} if loss is None else {"loss": loss}
            save(store, step, run_id=f"run{run}", retention=retention, metrics=metrics)
            for which in FILES:
                assert by_address(store, which) == by_list(store, which) == by_file(store, which)


@pytest.mark.parametrize(("broken", "best"), [(8, 4), (12, 8), (4, 8)])
def test_a_list_marks_what_the_addresses_lead_to_past_what_is_broken(broken, best):
    store = MemoryStore()
    for step, loss in {4: 2.0, 8: 1.0, 12: 3.0}.items():
        save(store, step, retention=keep(monitor="loss"), metrics={"loss": loss})
    (data,) = [key for key in store.objects if f"/data/step={broken}-" in key]
    del store.objects[data]
    for which in FILES:
        assert by_list(store, which) == by_address(store, which)
    assert by_list(store, "best").startswith(f"step={best}-")


def test_a_best_json_that_could_not_be_deleted_goes_with_the_next_save():
    store = FaultyStore(MemoryStore(), Fault("delete", key="best.json"))
    save(store, 8, retention=keep(monitor="loss"), metrics={"loss": 1.0})
    save(store, 1, retention=keep(monitor="loss"), run_id="later")
    assert by_file(store, "best") is not None
    save(store, 2, retention=keep(monitor="loss"), run_id="later")
    assert by_file(store, "best") is None


def test_a_store_without_a_best_is_asked_for_no_deletion():
    store = FaultyStore(MemoryStore())
    save(store, 1, retention=keep(), metrics={"loss": 1.0})
    assert not [event for event in store.events if event.operation == "delete"]


FAULTS = [
    Fault(operation, call, times=times, does=does, key=key)
    for operation, key in [("put", "last.json"), ("put", "best.json"), ("delete", "best.json")]
    for call in (1, 2, 3)
    for times in (1, 2)
    for does in ("raise", "lose")
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f"{f.operation}-{f.key}-{f.call}-{f.times}-{f.does}")
def test_no_pointer_names_what_is_gone_and_what_had_to_wait_goes_later(fault, caplog):
    store = FaultyStore(MemoryStore(), fault)
    saves = [("a", Retention(monitor="loss"), loss) for loss in (3.0, 1.0, 2.0, 0.5, 0.7)]
    saves += [("b", Retention(), 0.1)] * 5  # nothing of this run is best: best.json goes
    for step, (run_id, retention, loss) in enumerate(saves):
        save(store, step, run_id=run_id, retention=retention, metrics={"loss": loss})
        for which in FILES:
            by_file(store, which)  # raises for one that names what is gone
    assert caplog.text.count("is saved, but: ") == fault.times
    assert steps(store) == [3, 4, 9]
    for which in FILES:
        assert by_file(store, which) == by_address(store, which)
