"""Which validations S3Checkpoint saves as best, where some of these saves are refused."""

import pytest
import torch
from lightning import Callback

from dflash_lightning.checkpoint.session import Session
from tests.callbacks.saving_runs import EVERY_4, fit, in_thread, manifests_in
from tests.callbacks.saving_runs import store as store


class Values(Callback):
    """The metric `val/fake` of one validation after the other; None: not measured this time."""

    def __init__(self, values):
        self.values = [*values]

    def on_validation_end(self, trainer, pl_module):
        if not trainer.sanity_checking:
            trainer.callback_metrics.pop("val/fake", None)
            if self.values and (value := self.values.pop(0)) is not None:
                trainer.callback_metrics["val/fake"] = torch.tensor(value)


@pytest.fixture
def refuse(monkeypatch):
    """The saves as best that find no room, counted from 0."""

    def use(numbers):
        save, seen = Session.save, []

        def refused(self, job, state):
            if job.kind == "best":
                seen.append(job)
                if len(seen) - 1 in numbers:
                    return False
            return save(self, job, state)

        monkeypatch.setattr(Session, "save", refused)

    return use


@pytest.mark.parametrize(
    ("keep", "values", "refused", "stored", "bars"),
    [
        pytest.param(1, [2.0, 3.0, 2.5], [], [2.0, 3.0], [[2.0], [3.0]], marks=pytest.mark.slow),
        (1, [2.0, 3.0, 2.5, 2.4], [1], [2.0, 2.5], [[2.0], [2.5]]),  # nothing better than 2.5 is there
        pytest.param(1, [2.0, 3.0, 3.0], [1], [2.0, 3.0], [[2.0], [3.0]], marks=pytest.mark.slow),
        pytest.param(
            1, [2.0, None, 1.0], [0], [1.0], [[1.0]], marks=pytest.mark.slow
        ),  # the first one not even stored, the second not measured
        pytest.param(
            2,
            [1.0, 3.0, 2.0, 1.5],
            [1],
            [1.0, 2.0, 1.5],
            [[1.0], [2.0, 1.0], [2.0, 1.5]],
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_best_that_was_not_taken_keeps_no_other_out(
    keep, values, refused, stored, bars, refuse, tmp_path, toy_target, store
):
    folder = tmp_path / "kept"
    refuse(refused)
    callback = in_thread(folder, every_n_steps=None, keep_last=-1, keep_best=keep, monitor="val/fake")
    fit(tmp_path, toy_target, store, Values(values), callback, **EVERY_4, max_epochs=2)
    saved = [manifest for manifest in manifests_in(folder) if manifest.kind == "best"]
    assert [manifest.metrics["val/fake"] for manifest in saved] == stored
    held = [torch.load(folder / manifest.files[0].key, weights_only=True) for manifest in saved]
    states = [state["callbacks"][callback.state_key] for state in held]
    assert [state["best"] for state in states] == bars  # a resumed run goes on with the same bar
