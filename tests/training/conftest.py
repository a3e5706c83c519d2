"""One run without a pipeline, for all tests that compare with it."""

import pytest

from tests.runs import make_store
from tests.training.prefetch.prefetch_runs import HELD_OUT, LENGTHS, SETTINGS, fit


@pytest.fixture(scope="session")
def prefetch_store(tmp_path_factory, toy_target):
    return make_store(tmp_path_factory.mktemp("store"), toy_target, LENGTHS, held_out=HELD_OUT)


@pytest.fixture(scope="session")
def inline(tmp_path_factory, toy_target, prefetch_store):
    """(folder, what the run did)"""
    root = tmp_path_factory.mktemp("inline")
    return root, fit(root, toy_target, prefetch_store, **SETTINGS)
