"""Hidden states from disk through the pipeline: the same worker thread, another source."""

import pytest

from dflash_lightning.target.dispatch import PrefetchPolicy
from tests.slow import slow
from tests.training.prefetch.prefetch_runs import assert_equal_runs, fit
from tests.training.prefetch.prefetch_runs import no_thread_is_left as no_thread_is_left
from tests.training.prefetch.test_stored_states import write


@pytest.mark.parametrize(
    "policy",
    [PrefetchPolicy(depth=2), *slow(PrefetchPolicy(depth=3, delivery="ready_first"))],
    ids=["in order", "ready"],
)
def test_reading_ahead_changes_nothing(policy, tmp_path, toy_target, prefetch_store):
    """One reader delivers in order whatever the policy."""
    states = {"hidden_states": write(tmp_path / "states", toy_target, prefetch_store)}
    settings = {"module": states, "max_epochs": 1}
    inline = fit(tmp_path / "inline", toy_target, prefetch_store, **settings)
    ahead = fit(tmp_path / "ahead", toy_target, prefetch_store, policy=policy, **settings)
    assert_equal_runs(ahead, inline)
