"""LossBands against a recount from single micro-batches; alarms and words. On two ranks: tests/ranks."""

import math
from pathlib import Path

import pytest
from lightning import Callback

from dflash_lightning.callbacks.loss_bands import LossBands
from dflash_lightning.training.watch.loss_bands import BandRule
from tests.callbacks.conftest import EVERY
from tests.callbacks.recount_lines import by_step, losses, mix_pct
from tests.ranks import jobs
from tests.runs import toy_data, toy_module, toy_trainer

PREFIXES = ("loss/", "acceptance/", "train/loss", "train/accuracy", "train/tau")


def logged_rows(run):
    return [row for row in run["rows"] if "train/step" in row]


def test_every_value_is_the_recount_over_all_steps_since_the_last_log(observed):
    run = observed[1]
    steps = by_step([run["micro"]])
    rows = logged_rows(run)
    assert [float(row["train/step"]) for row in rows] == list(range(EVERY, len(steps) + 1, EVERY))
    for row in rows:
        upto = int(float(row["train/step"]))
        ours = {name: float(value) for name, value in row.items() if name.startswith(PREFIXES)}
        assert ours.pop("loss/out_of_band") == 0
        expected = mix_pct(steps, upto=upto, every=EVERY, buckets=3, half_life=16.0)
        assert ours.pop("loss/mix_pct") == pytest.approx(expected, rel=1e-6)
        assert ours == pytest.approx(losses(steps, upto=upto, every=EVERY, buckets=3), rel=1e-6, nan_ok=True)


def test_a_bucket_that_did_not_come_has_no_value(tmp_path, toy_target, observed_store):
    """One batch a step: two of three buckets are absent each time, and their last values are not repeated."""
    options = {"log_every_n_steps": 1, "accumulate_grad_batches": 1, "observe": True, "max_epochs": 1}
    run = jobs.fit(str(tmp_path), str(toy_target), observed_store, **options)
    steps, rows = by_step([run["micro"]]), logged_rows(run)
    assert len(rows) == len(steps) > 10
    for row in rows:
        upto = int(float(row["train/step"]))
        expected = losses(steps, upto=upto, every=1, buckets=3)
        assert {name: float(row[name]) for name in expected} == pytest.approx(expected, rel=1e-6, nan_ok=True)
        assert sum(math.isfinite(expected[f"loss/bucket_{bucket}"]) for bucket in range(3)) == 1


@pytest.mark.slow
def test_a_resumed_run_logs_the_same(observed, resumed):
    whole = [row for row in observed[1]["rows"] if int(row["step"]) >= 4]
    assert jobs.without_times(resumed["rows"]) == jobs.without_times(whole)
    assert any("loss/bucket_0" in row for row in whole)


def test_an_epoch_has_a_table_and_a_picture(observed):
    folder = Path(observed[1]["log_dir"])
    for epoch in (0, 1):
        header, *rows = (folder / "tables" / f"loss_bands-{epoch}.csv").read_text().splitlines()
        assert header == "step,bucket,loss,band_from,band_to"
        assert len(rows) > 2
        assert (folder / "pictures" / f"loss_bands_picture-{epoch}.png").stat().st_size > 1000


class Sharpen(Callback):
    """Makes the head of the target so sharp that losses are large, for some optimizer steps."""

    def __init__(self, steps):
        self.steps = steps

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        self.sharp = pl_module.data.position.steps in self.steps
        if self.sharp:
            pl_module.target.head.mul_(256.0)

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if self.sharp:
            pl_module.target.head.div_(256.0)


def fit(tmp_path, toy_target, store, *callbacks):
    options = {"max_epochs": 3, "accumulate_grad_batches": 1, "log_every_n_steps": 4}
    trainer = toy_trainer(tmp_path, callbacks=callbacks, **options)
    module = toy_module(toy_target, lr=1e-4)
    trainer.fit(module, toy_data(Path(store)))
    return jobs.read_rows(Path(trainer.log_dir))


def test_an_injected_excursion_is_warned_of_and_called_instability(
    tmp_path, toy_target, observed_store, said
):
    bands = LossBands(BandRule(warm_up=4, patience=1))
    with pytest.warns(
        UserWarning, match=r"loss of bucket \d \(\d+ to \d+ tokens\) .* above its band"
    ) as found:
        rows = fit(tmp_path, toy_target, observed_store, bands, Sharpen({30, 31}))
    alarms = [str(warning.message) for warning in found if "above its band" in str(warning.message)]
    assert alarms
    assert all(" is " in text and (" at step 31," in text or " at step 32," in text) for text in alarms)
    assert max(jobs.logged(rows, "loss/out_of_band")) >= 1
    words = said.beginning("loss in epoch")
    assert len(words) == 3
    assert "instability: bucket" in words[2]
    assert not any("instability: bucket" in text for text in words[:2])


def test_without_one_nothing_is_warned_of(tmp_path, toy_target, observed_store, said):
    """Warnings are errors here."""
    rows = fit(tmp_path, toy_target, observed_store, LossBands())
    assert set(jobs.logged(rows, "loss/out_of_band")) == {0.0}
    words = said.beginning("loss in epoch")
    assert len(words) == 3
    assert not any("above its band" in text for text in words)
    assert "3 of 3 buckets had too few steps for a band" in words[0]  # 16 make one trusted


@pytest.mark.slow
def test_a_run_saved_behind_the_last_step_of_an_epoch_still_tells_of_it(
    observed, tmp_path, toy_target, observed_store, said
):
    settings = {"log_every_n_steps": EVERY, "keep": True, "observe": True}
    kept = f"{observed[0]}/kept/step=6.ckpt"
    jobs.fit(str(tmp_path), str(toy_target), observed_store, resume=kept, **settings)
    assert [text[:15] for text in said.beginning("loss in epoch")] == [
        "loss in epoch 0",
        "loss in epoch 1",
    ]
