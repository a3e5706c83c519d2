"""Toy runs with and without the target ahead: what the tests of prefetching in training share."""

import threading

import numpy as np
import pytest
import torch

from tests.ranks import jobs

LENGTHS = np.random.default_rng(5).integers(6, 33, 44).tolist()
HELD_OUT = [10, 30, 20]
SETTINGS = {"keep": True, "log_every_n_steps": 3, "val_check_interval": 6, "check_val_every_n_epoch": None}
"""Validation comes in the middle of an epoch, while the target runs ahead."""


@pytest.fixture(autouse=True)
def no_thread_is_left():
    yield
    assert not prefetch_threads()


def prefetch_threads():
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("prefetch")]


def fit(root, target, store, *, devices=0, policy=None, **options):
    module = {**options.pop("module", {}), "target_devices": devices, "prefetch": policy}
    return jobs.fit(str(root), str(target), str(store), module=module, **options)


def assert_equal_runs(ours, theirs, *, behind=0):
    assert ours["steps"] == theirs["steps"][behind:]
    assert ours["batches"] == theirs["batches"][len(theirs["batches"]) - len(ours["batches"]) :]
    assert ours["position"] == theirs["position"]
    for name, value in theirs["weights"].items():
        assert torch.equal(ours["weights"][name], value), name
