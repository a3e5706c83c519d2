import logging

import numpy as np
import pytest

from tests.ranks import jobs
from tests.runs import make_store

LENGTHS = np.random.default_rng(5).integers(6, 33, 44).tolist()
EVERY = 3
"""Optimizer steps between two logs of `observed`."""


@pytest.fixture(scope="session")
def observed_store(tmp_path_factory, toy_target):
    held_out = [10, 30, 20, 15, 9]
    return str(make_store(tmp_path_factory.mktemp("store"), toy_target, LENGTHS, held_out=held_out))


@pytest.fixture(scope="session")
def observed(tmp_path_factory, toy_target, observed_store):
    """(folder, what came of it): two epochs with every callback that watches, each step's checkpoint."""
    root = str(tmp_path_factory.mktemp("observed"))
    settings = {"log_every_n_steps": EVERY, "keep": True, "observe": True}
    return root, jobs.fit(root, str(toy_target), observed_store, **settings)


@pytest.fixture(scope="session")
def resumed(observed, tmp_path_factory, toy_target, observed_store):
    """The same run, gone on from step 4, between two logs."""
    root = str(tmp_path_factory.mktemp("resumed"))
    settings = {"log_every_n_steps": EVERY, "keep": True, "observe": True}
    kept = f"{observed[0]}/kept/step=4.ckpt"
    return jobs.fit(root, str(toy_target), observed_store, resume=kept, **settings)


class Heard(logging.Handler):
    """Keeps what is said."""

    def __init__(self):
        super().__init__(logging.INFO)
        self.texts = []

    def emit(self, record):
        self.texts.append(record.getMessage())

    def beginning(self, words):
        return [text for text in self.texts if text.startswith(words)]


@pytest.fixture
def said():
    """What a run tells its user, on rank 0."""
    heard, logger = Heard(), logging.getLogger("lightning.pytorch.utilities.rank_zero")
    logger.addHandler(heard)
    yield heard
    logger.removeHandler(heard)
