"""Whatever is ready, inside one optimizer window: the same windows, each sample once, the right names."""

import threading
from collections import Counter

import pytest
import torch
from lightning import Callback

from dflash_lightning.callbacks.micro_batches import MicroBatches
from dflash_lightning.target.dispatch import PrefetchPolicy
from tests.ranks import jobs
from tests.ranks.jobs import Recorder
from tests.runs import toy_data, toy_module, toy_trainer
from tests.training.prefetch.prefetch_runs import LENGTHS, SETTINGS, fit
from tests.training.prefetch.prefetch_runs import no_thread_is_left as no_thread_is_left

READY = PrefetchPolicy(delivery="ready_first", depth=3)


def windows(batches, accumulate=2):
    """Sample ids of each optimizer step, whatever the order inside."""
    return [
        sorted(i for batch in batches[at : at + accumulate] for i in batch["ids"])
        for at in range(0, len(batches), accumulate)
    ]


def test_ready_first_trains_the_same_windows(inline, tmp_path, toy_target, prefetch_store):
    ours = fit(tmp_path, toy_target, prefetch_store, devices=3, policy=READY, **SETTINGS)
    whole = [batch for batch in inline[1]["batches"] if batch["epoch"] == 0]
    epoch = [batch for batch in ours["batches"] if batch["epoch"] == 0]
    assert windows(epoch) == windows(whole)
    assert ours["position"] == inline[1]["position"]
    for name, value in inline[1]["weights"].items():
        torch.testing.assert_close(ours["weights"][name], value, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("step", [1, pytest.param(4, marks=pytest.mark.slow)])
def test_ready_first_gives_every_sample_once_through_a_stop(step, tmp_path, toy_target, prefetch_store):
    settings = {"devices": 3, "policy": READY, "keep": True}
    before = fit(tmp_path / "a", toy_target, prefetch_store, max_steps=step, **settings)
    checkpoint = str(tmp_path / "a" / "kept" / f"step={step}.ckpt")
    after = fit(tmp_path / "b", toy_target, prefetch_store, resume=checkpoint, **settings)
    seen = Counter(
        i for b in (*before["batches"], *after["batches"]) if b["epoch"] == 0 for i in b["ids"] if i >= 0
    )
    assert seen == Counter(range(len(LENGTHS)))


class LateFirst(Callback):
    """The first micro-batch of a window of two is ready only when the second one is being trained."""

    def __init__(self):
        self.second = threading.Event()

    def on_fit_start(self, trainer, pl_module):
        slow, fast = pl_module.pipeline._workers

        def wait(batch):
            assert self.second.wait(60)
            self.second.clear()
            return slow(batch)

        pl_module.pipeline._workers = [wait, fast]

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if pl_module.place_in_window == 1:
            self.second.set()

    def on_train_end(self, trainer, pl_module):
        self.second.set()


@pytest.mark.slow
def test_micro_batches_out_of_turn_are_told_by_their_own_names(tmp_path, toy_target, prefetch_store):
    """Their buckets and samples are looked up in the plan's window."""
    recorder = Recorder()
    trainer = toy_trainer(tmp_path, callbacks=[MicroBatches(), recorder, LateFirst()], max_steps=3)
    policy = PrefetchPolicy(delivery="ready_first", depth=1)
    module = toy_module(toy_target, target_devices=2, prefetch=policy)
    trainer.fit(module, toy_data(prefetch_store))
    lines = jobs.read_lines(tmp_path / "micro_batches.rank0.jsonl")
    trained = [(batch["bucket"], len(batch["ids"]), batch["padded_length"]) for batch in recorder.batches]
    told = [(line["bucket"], line["samples"], line["seq_len"]) for line in lines]
    assert told == [trained[i] for pair in zip(range(1, 6, 2), range(0, 6, 2), strict=True) for i in pair]
    assert [line["micro_step"] for line in lines] == [0, 1] * 3
    assert all(a["time"] >= b["time"] for a, b in zip(lines[::2], lines[1::2], strict=True))
