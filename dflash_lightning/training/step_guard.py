"""A step whose gradient is not finite changes nothing, is written down, and may not happen for ever.

law   only non-finite steps are skipped: a finite loss of 100 times the mean still steps
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from dflash_lightning.plan.windows import Window
from dflash_lightning.training.gather import rows_of_all_ranks

if TYPE_CHECKING:
    from dflash_lightning.training.window_steps import WindowSteps


def offending_batches(window: Window, finite: Sequence[Sequence[bool]]) -> list[dict[str, Any]]:
    """Who to look at: `finite[rank][micro_step]` says whether that micro-batch's own loss was a number.

    Returns the micro-batches whose loss is already bad; where none is (the gradient alone overflowed), all
    of the window's, by rank.
    """
    batches = [
        {
            "rank": rank,
            "micro_step": micro_step,
            "loss_is_finite": finite[rank][micro_step],
            "sample_ids": batch.sample_ids.tolist(),
        }
        for micro_step, ranks in enumerate(window.batches)
        for rank, batch in enumerate(ranks)
    ]
    return [b for b in batches if not b["loss_is_finite"]] or batches


class SkipCounter:
    """Counts skipped steps; the same numbers on every rank, so that all stop together."""

    def __init__(self, limit: int) -> None:
        if limit < 1:
            raise ValueError(f"model.max_skipped_steps must be at least 1, got {limit}")
        self.limit = limit
        self.total = 0
        self.in_a_row = 0

    def passed(self) -> None:
        self.in_a_row = 0

    def skipped(self, record: dict[str, Any], path: Path, *, write: bool) -> None:
        """Count a skipped step; the rank that writes appends `record` to `path`, one JSON object a line.

        Raises: RuntimeError after `limit` skipped steps in a row.
        """
        self.total += 1
        self.in_a_row += 1
        if write:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a") as file:
                file.write(json.dumps(record) + "\n")
        if self.in_a_row >= self.limit:
            raise RuntimeError(
                f"{self.in_a_row} optimizer steps in a row had no finite gradient, the last one at step "
                f"{record['step']} on samples {_ids(record)}; all are listed in {path}. "
                "Look at those rows, lower model.lr, or allow more with model.max_skipped_steps"
            )

    def state_dict(self) -> dict[str, int]:
        return {"total": self.total, "in_a_row": self.in_a_row}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.total, self.in_a_row = state["total"], state["in_a_row"]


def skipped_steps_path(module: "WindowSteps") -> Path:
    """Where the samples of skipped steps are written. A collective (log_dir is): call it on all ranks."""
    trainer = module.trainer
    return Path(trainer.log_dir or trainer.default_root_dir) / "skipped_steps.jsonl"


def report_skipped(module: "WindowSteps", window: Window) -> None:
    """Count and write down the step that has just been skipped. A collective.

    Raises: RuntimeError when it was one too many in a row.
    """
    step, trainer = module.last_step, module.trainer
    assert step is not None
    finite = torch.stack([torch.isfinite(loss) for loss in module.window_sums.losses])
    batches = offending_batches(window, rows_of_all_ranks(trainer, finite.long()).bool().tolist())
    record = {"step": step.step, "epoch": trainer.current_epoch, "norm": str(step.norm), "batches": batches}
    module.guard.skipped(record, skipped_steps_path(module), write=trainer.is_global_zero)


def _ids(record: dict[str, Any], most: int = 8) -> str:
    ids = [i for batch in record["batches"] for i in batch["sample_ids"]]
    return ", ".join(map(str, ids[:most])) + (", ..." if len(ids) > most else "")
