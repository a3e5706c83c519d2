"""A save that is stored behind a newer one, as at the end of a run, where the newest goes first."""

import json

import pytest

from dflash_lightning.checkpoint.job import Retention
from dflash_lightning.checkpoint.layout import LAST
from dflash_lightning.checkpoint.resuming.resume import resolve
from dflash_lightning.checkpoint.stores.memory import MemoryStore
from tests.checkpoint.saving import PREFIX, save, steps

BEST = {"kind": "best", "must_keep": True, "metrics": {"val/tau": 2.0}}


@pytest.mark.parametrize("late", [[8], [8, 6], [6, 8]])
def test_the_later_step_stays_the_newest(late):
    store = MemoryStore()
    rules = Retention(keep_last=1, keep_best=1, monitor="val/tau", mode="max")
    save(store, 4, session="a", retention=rules)
    save(store, 10, session="a", kind="end", retention=rules)
    for step in late:
        save(store, step, session="a", retention=rules, **BEST)
        assert resolve(store, PREFIX, "last").step == 10
        assert json.loads(store.read(f"{PREFIX}/{LAST}"))["step"] == 10
    assert 10 in steps(store)
    assert resolve(store, PREFIX, "best").step in late


def test_a_run_that_went_back_is_newer_than_what_it_left():
    store = MemoryStore()
    save(store, 8, session="a", retention=Retention(keep_last=-1))
    save(store, 4, session="b", retention=Retention(keep_last=-1))
    assert resolve(store, PREFIX, "last").step == 4
    save(store, 6, session="b", retention=Retention(keep_last=-1))
    save(store, 5, session="b", retention=Retention(keep_last=-1))  # late
    assert resolve(store, PREFIX, "last").step == 6
