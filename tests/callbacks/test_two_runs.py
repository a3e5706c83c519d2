"""One set of callbacks may serve several runs of a process, and a run of any length."""

import json
from pathlib import Path

import numpy as np
import pytest

from dflash_lightning.data.window_facts import WindowFacts
from dflash_lightning.training.watch.bucket_counts import BucketCounts
from tests.every_callback import every_callback
from tests.ranks import jobs
from tests.runs import make_store, toy_data, toy_module, toy_trainer

LENGTHS = np.random.default_rng(5).integers(6, 33, 36).tolist()


def rows(trainer):
    return jobs.without_times(jobs.read_rows(Path(trainer.log_dir)))


@pytest.mark.slow
@pytest.mark.parametrize("resumed", [False, True], ids=["fresh", "behind a resumed one"])
def test_a_run_shows_nothing_of_the_one_before(resumed, tmp_path, toy_target):
    """The first run stops between two logs, where sums are under way."""
    store = make_store(tmp_path / "data", toy_target, LENGTHS)
    served = every_callback()

    def fit(name, callbacks, **options):
        ckpt_path = options.pop("ckpt_path", None)
        options = {"log_every_n_steps": 2, "max_epochs": 1, **options}
        trainer = toy_trainer(tmp_path / name, callbacks=callbacks, **options)
        trainer.fit(toy_module(toy_target), toy_data(store), ckpt_path=ckpt_path)
        return trainer

    first = fit("first", served, max_steps=3)
    if resumed:
        first.save_checkpoint(tmp_path / "three.ckpt")
        fit("on", served, max_steps=5, ckpt_path=str(tmp_path / "three.ckpt"))
    ours, alone = rows(fit("second", served)), rows(fit("alone", every_callback()))
    assert len(ours) >= 2
    assert ours == alone


def test_counts_between_two_logs_take_no_more_memory_with_every_step():
    """`log_every_n_steps: 0` never logs."""
    one = np.ones(2, np.int64)
    facts = WindowFacts(np.arange(2), one, one, one, one, one)
    counts, sizes = BucketCounts(3, window_steps=10), []
    for _ in range(3):
        for _ in range(200):
            counts.add(facts, np.full(3, 1 / 3))
        sizes.append(len(json.dumps(counts.state_dict())))
    assert max(sizes) - min(sizes) < 40  # digits of what is counted
