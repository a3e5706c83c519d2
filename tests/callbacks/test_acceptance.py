"""What a validation tells: a line, a table and a picture of the values that are logged anyway."""

import csv
from pathlib import Path

import pytest

from dflash_lightning.callbacks.acceptance import Acceptance
from tests.ranks import jobs
from tests.runs import toy_data, toy_module, toy_trainer


def test_table_and_picture_hold_the_logged_accuracies(observed):
    folder = Path(observed[1]["log_dir"])
    validations = [row for row in observed[1]["rows"] if "val/tau" in row]
    assert len(validations) == 2
    for epoch, row in enumerate(validations):
        with (folder / "tables" / f"val_acceptance-{epoch}.csv").open() as file:
            table = list(csv.DictReader(file))
        assert [(float(line["step"]), float(line["slot"])) for line in table] == [
            (6 * (epoch + 1), slot) for slot in (1, 2, 3)
        ]
        for line in table:
            logged = float(row[f"val/accuracy_slot_{float(line['slot']):.0f}"])
            assert float(line["accuracy"]) == pytest.approx(logged, rel=1e-5)
        assert (folder / "pictures" / f"val_acceptance_picture-{epoch}.png").stat().st_size > 1000


def test_one_line_for_people_and_none_at_a_sanity_check(tmp_path, toy_target, observed_store, said):
    trainer = toy_trainer(tmp_path, callbacks=[Acceptance()], max_epochs=1, num_sanity_val_steps=1)
    trainer.fit(toy_module(toy_target), toy_data(Path(observed_store)))
    (row,) = [row for row in jobs.read_rows(Path(trainer.log_dir)) if "val/tau" in row]
    (line,) = said.beginning("validation at step")
    assert line.startswith(
        f"validation at step 6: {float(row['val/tau']):.3f} tokens per target pass (streak "
        f"{float(row['val/streak']):.3f}); {100 * float(row['val/accuracy']):.1f} % of slots right"
    )


def test_the_values_are_logged_without_it(tmp_path, toy_target, observed_store):
    ours = jobs.fit(str(tmp_path), str(toy_target), observed_store, max_epochs=1)
    (row,) = [row for row in ours["rows"] if "val/tau" in row]
    assert {
        "val/streak",
        "val/accuracy",
        "val/loss",
        "val/accuracy_slot_1",
        "val/accuracy_slot_3",
    } <= row.keys()
