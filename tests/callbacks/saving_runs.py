"""Small runs with S3Checkpoint: what its tests share. Import the fixtures by name."""

import numpy as np
import pytest
from lightning import Callback

from dflash_lightning.callbacks.s3_checkpoint import S3Checkpoint
from dflash_lightning.checkpoint.listing import list_manifests
from dflash_lightning.checkpoint.stores.local import LocalStore
from tests.ranks.jobs import Recorder
from tests.runs import make_store, toy_data, toy_module, toy_trainer

LENGTHS = np.random.default_rng(5).integers(6, 33, 44).tolist()
STOP = 4
PATIENCE = 300.0
"""Seconds for a writer of its own process, which imports torch, on a machine that may be busy."""
EVERY_4 = {"val_check_interval": 4, "check_val_every_n_epoch": None}
"""Micro-batches between validations."""


@pytest.fixture(scope="module")
def store(tmp_path_factory, toy_target):
    return make_store(tmp_path_factory.mktemp("store"), toy_target, LENGTHS, held_out=[10, 20])


class At(Callback):
    """Does something behind one optimizer step."""

    def __init__(self, step, action):
        self.step, self.action = step, action

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if pl_module.step_finished and pl_module.data.position.steps == self.step:
            self.action()


def fit(root, target, store, *callbacks, resume=None, **options):
    recorder = Recorder()
    settings = {"max_epochs": 1, "enable_checkpointing": True, **options}
    trainer = toy_trainer(root, callbacks=[*callbacks, recorder], **settings)
    trainer.fit(toy_module(target), toy_data(store), ckpt_path=resume)
    return recorder


def in_thread(folder, **options):
    return S3Checkpoint(str(folder), **{"process": False, "every_n_steps": 2, **options})


def steps_in(folder):
    """Of the checkpoints that are complete, oldest first."""
    manifests = list_manifests(LocalStore(folder), "").manifests
    return [(m.step, m.kind) for m in reversed(manifests)]


def manifests_in(folder):
    return list(reversed(list_manifests(LocalStore(folder), "").manifests))


class Fail(Exception):
    pass


def fail():
    raise Fail("an error of the training code")


@pytest.fixture(scope="module")
def whole(tmp_path_factory, toy_target, store):
    """Never stopped, and without S3Checkpoint."""
    return fit(tmp_path_factory.mktemp("whole"), toy_target, store)
