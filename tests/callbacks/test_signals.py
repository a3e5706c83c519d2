"""StopOnSignal in one process. Several, and what a shell sees: tests/ranks."""

import os
import signal
import time

import numpy as np
import pytest
import torch
from lightning import Callback

from dflash_lightning.callbacks.signals import StopOnSignal, StoppedBySignal
from tests.ranks.jobs import read_rows
from tests.runs import make_store, toy_data, toy_module, toy_trainer

LENGTHS = np.random.default_rng(5).integers(6, 33, 44).tolist()


class Send(Callback):
    """Sends signals to its own process at the start of one micro-batch, or of a validation."""

    def __init__(self, *numbers, micro_batch=None):
        self.numbers = numbers
        self.micro_batch = micro_batch
        self.seen = 0

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if self.seen == self.micro_batch:
            self._send()
        self.seen += 1

    def on_validation_start(self, trainer, pl_module):
        if self.micro_batch is None:
            self._send()

    def _send(self):
        for number in self.numbers:
            os.kill(os.getpid(), number)
            time.sleep(0.01)


@pytest.fixture(scope="module")
def store(tmp_path_factory, toy_target):
    return make_store(tmp_path_factory.mktemp("store"), toy_target, LENGTHS, held_out=[10, 20])


@pytest.fixture
def handlers():
    """What was installed before must be there again afterwards."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    assert {number: signal.getsignal(number) for number in before} == before


def stopped(root, target, store, send):
    settings = {"max_epochs": 2, "log_every_n_steps": 1, "enable_checkpointing": True}
    trainer = toy_trainer(root, callbacks=[send, StopOnSignal()], **settings)
    data = toy_data(store)
    with pytest.raises(StoppedBySignal) as reason:
        trainer.fit(toy_module(target), data)
    (checkpoint,) = root.glob("logs/version_0/checkpoints/*")
    return (
        reason.value.code,
        torch.load(checkpoint, weights_only=True),
        read_rows(root / "logs" / "version_0"),
    )


@pytest.mark.parametrize(
    ("numbers", "code"),
    [
        ([signal.SIGTERM], 143),
        ([signal.SIGINT], 130),
        ([signal.SIGTERM, signal.SIGTERM], 143),  # an echo within two seconds is no second signal
        ([signal.SIGINT, signal.SIGTERM], 143),  # a scheduler's word counts more
    ],
)
@pytest.mark.parametrize("micro_batch", [4, 5])
def test_the_current_step_is_finished_saved_and_logged(
    micro_batch, numbers, code, tmp_path, toy_target, store, handlers
):
    ours, content, rows = stopped(tmp_path, toy_target, store, Send(*numbers, micro_batch=micro_batch))
    assert ours == code
    assert content["DFlashDataModule"]["position"]["steps"] == 3  # micro-batches 4 and 5 are its window
    assert [float(row["train/step"]) for row in rows] == [1, 2, 3]


def test_a_signal_during_validation_stops_behind_it(tmp_path, toy_target, store, handlers):
    code, content, rows = stopped(tmp_path, toy_target, store, Send(signal.SIGTERM))
    steps = content["DFlashDataModule"]["position"]["steps"]
    assert code == 143
    assert content["dflash"]["validated_at"] == steps
    assert content["DFlashDataModule"]["position"]["epoch"] == 1
    assert rows[-1]["val/tau"]


def test_without_a_signal_nothing_happens(tmp_path, toy_target, store, handlers):
    trainer = toy_trainer(tmp_path, callbacks=[StopOnSignal()], max_epochs=1, enable_checkpointing=True)
    trainer.fit(toy_module(toy_target), toy_data(store))
    assert list(tmp_path.rglob("*.ckpt")) == []
