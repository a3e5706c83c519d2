"""Verdict "sampling artefact": the bands of a chart come from which single batches were sampled for it.

in    single batches with their split, and the window curve where it was logged
out   Verdict or None; sampled, which makes such a chart of a whole micro log
"""

import numpy as np

from dflash_lightning.report.detect.bands import bands, tell_bands
from dflash_lightning.report.detect.curve import jitter
from dflash_lightning.report.detect.labelled import Labelled
from dflash_lightning.report.detect.mix import is_mix
from dflash_lightning.report.detect.split import Split
from dflash_lightning.report.kinds import Verdict
from dflash_lightning.report.run import FloatArray, IntArray

SAMPLED_SHARE = 0.5
"""Single batches of fewer than this share of the steps are a sample, not the run."""
SMOOTH = 0.6
"""Windows that move less than this share of what single batches do are the better chart."""


def sampled(time: FloatArray, *, seconds: float = 10.0, batches: int = 2) -> IntArray:
    """Indices of the first `batches` batches after every so many seconds: the chart that misled people."""
    ticks = np.arange(time[0], time[-1], seconds)
    picked = np.unique(np.searchsorted(time, ticks)[:, None] + np.arange(batches))
    return picked[picked < len(time)].astype(np.int64)


def sampling_artefact(batches: Labelled, single: Split, window_loss: FloatArray | None) -> Verdict | None:
    """`window_loss` is the logged window curve, None where only samples were logged."""
    if batches.covered_share() >= SAMPLED_SHARE or not is_mix(single):
        return None
    if len(bands(single.levels, single.jitter_within)) < 2:
        return None
    jumps = single.jitter
    smooth = None if window_loss is None else jitter(window_loss)
    if smooth is not None and smooth > SMOOTH * jumps:
        return None
    headline = (
        "sampling artefact: the bands are those of the sampled single batches, not of the training; "
        + tell_bands(single.levels, single.jitter_within, single.names)
    )
    return Verdict(
        "sampling artefact",
        headline,
        [
            f"{_how_sampled(batches)}; {single.mix_share:.0%} of their movement is the length of the samples",
            f"inside a band they move by {single.jitter_within:.3g}, together by {jumps:.3g}",
            _which_chart(smooth),
        ],
    )


def _how_sampled(batches: Labelled) -> str:
    share = f"the values are single batches of {batches.covered_share():.0%} of the steps"
    time = np.sort(batches.time[np.isfinite(batches.time)])
    if len(time) < len(batches.loss) or len(time) < 3:
        return share
    gaps = np.diff(time)
    long = gaps > (gaps.min() + gaps.max()) / 2
    if not 0 < long.sum() < len(gaps):
        return share
    starts = np.flatnonzero(np.concatenate(([True], long)))
    return f"{share}, {len(time) / len(starts):.0f} at a time every {np.median(np.diff(time[starts])):.0f} s"


def _which_chart(smooth: float | None) -> str:
    if smooth is None:
        return "trust a chart of whole windows: it is not in this log; train/loss of the module is one"
    return f"trust the window curve (train/loss): all batches of a step together move by {smooth:.3g}"
