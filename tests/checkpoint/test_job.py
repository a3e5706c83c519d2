"""Jobs are plain frozen values; nonsense is refused where it is written."""

import pickle

import pytest

from dflash_lightning.checkpoint.job import Retention, SaveJob


def test_a_job_survives_the_way_to_the_writer():
    job = SaveJob(
        step=8,
        epoch=1,
        kind="best",
        run_id="a",
        metrics={"val/tau": 2.5},
        facts={"plan_digest": "d", "versions": {"torch": "2.13"}, "world_size": 2},
        retention=Retention(keep_best=3, monitor="val/tau", mode="max"),
    )
    assert pickle.loads(pickle.dumps(job)) == job


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ({"keep_last": -2}, "keep_last must be 0 or more, or -1 for all, got -2"),
        ({"keep_best": -5}, "keep_best must be 0 or more, or -1 for all, got -5"),
        ({"every_n_steps": 0}, "every_n_steps must be 1 or more, or null, got 0"),
    ],
)
def test_retention_refuses_nonsense(field, message):
    with pytest.raises(ValueError, match=message):
        Retention(**field)


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ({"step": -1}, "step and epoch must be 0 or more, got step -1 of epoch 0"),
        ({"epoch": -1}, "got step 1 of epoch -1"),
        ({"run_id": ""}, "run_id must not be empty"),
    ],
)
def test_a_job_refuses_nonsense(field, message):
    with pytest.raises(ValueError, match=message):
        SaveJob(**{"step": 1, "epoch": 0, "kind": "step", "run_id": "a"} | field)
