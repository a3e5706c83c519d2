"""From a run's log to verdicts in words, most important first.

in    Run
out   list[Verdict], never empty
law   no verdict without figures; too few values give "unknown", nothing to see gives "steady"
"""

import numpy as np

from dflash_lightning.report.kinds import KINDS as KINDS
from dflash_lightning.report.kinds import Verdict as Verdict
from dflash_lightning.report.run import Run

MIN_VALUES = 40
"""Fewer values of the loss cannot tell a trend from noise."""


def judge_run(run: Run) -> list[Verdict]:
    """What the log shows, most important first."""
    finite = int(np.isfinite(run.loss).sum())
    if finite < MIN_VALUES:
        return [Verdict("unknown", f"{finite} values of the loss are too few: {MIN_VALUES} are needed")]
    return [Verdict("steady", f"nothing stands out in {finite} values of the loss")]
