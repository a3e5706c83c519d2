"""Everything that is known about the loss by bucket: bands, the variance split, the epoch so far.

in    WindowTotals of each optimizer step
out   alarms as they happen, values to log, the words, table rows and picture of an epoch
law   every value is a ratio of sums over all steps since the last one; a bucket without tokens has NaN, since
      Lightning would repeat the value before it where there is none
"""

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from dflash_lightning.training.watch.loss_bands import Band, BandRule, Excursion
from dflash_lightning.training.watch.loss_words import alarm, all_clear, epoch_words
from dflash_lightning.training.watch.mix_split import MixSplit, RawSplit
from dflash_lightning.training.window_sums import Sums

BandRow = tuple[float, float, float, float, float]
"""(step, bucket, mean loss since the last log, band from, band to); NaN where there is no band yet."""
COLUMNS = ("step", "bucket", "loss", "band_from", "band_to")
MOST_LOGS = 400
"""Logs of an epoch that table and picture keep; of more, every second one is dropped, again and again."""
NO_BAND = (math.nan, math.nan)


class LossWatch:
    """One run's losses by bucket. The same on every rank, since the sums are."""

    def __init__(self, edges: Sequence[int], rule: BandRule) -> None:
        self.edges = tuple(edges)
        self.bands = [Band(bucket, rule) for bucket in range(len(edges))]
        self.mix = MixSplit(num_buckets=len(edges), half_life=rule.half_life)
        self.raw = RawSplit(num_buckets=len(edges))
        self.since_log = [Sums() for _ in edges]
        self.out_since_log: set[int] = set()
        self.excursions: dict[tuple[int, int], Excursion] = {}
        """Of this epoch, by bucket and first step."""
        self.skipped = 0
        self.logs: list[list[BandRow]] = []
        self._every, self._number = 1, 0

    def add(self, buckets: Sequence[Sums], step: int) -> tuple[list[str], list[str]]:
        """Count one applied step. Returns (alarms, news): buckets that have left their band, or are back."""
        alarms, news = [], []
        for band, sums in zip(self.bands, buckets, strict=True):
            if not sums.weight:
                continue
            before = band.excursion if band.out else None
            if excursion := band.add(sums.mean_loss, sums.weight, step):
                alarms.append(alarm(excursion, self.edges, sums.mean_loss))
            if band.excursion and band.out:
                self.excursions[band.bucket, band.excursion.since] = band.excursion
                self.out_since_log.add(band.bucket)
            elif before:
                news.append(all_clear(before, self.edges, step))
        if any(sums.weight for sums in buckets):
            self.mix.add(buckets)
        self.raw.add(buckets)
        self.since_log = [a + b for a, b in zip(self.since_log, buckets, strict=True)]
        return alarms, news

    def take(self, step: int) -> dict[str, float]:
        """All values to log now, NaN where there is none; the next stretch begins."""
        present = {i: sums for i, sums in enumerate(self.since_log) if sums.weight}
        losses = [sums.mean_loss for sums in present.values()]
        share = self.mix.take()
        values = {
            **{f"loss/bucket_{i}": sums.mean_loss for i, sums in enumerate(self.since_log)},
            **{f"acceptance/bucket_{i}": sums.tau for i, sums in enumerate(self.since_log)},
            "loss/spread": max(losses) - min(losses) if len(losses) > 1 else math.nan,
            "loss/out_of_band": float(len(self.out_since_log)),
            "loss/mix_pct": math.nan if share is None else 100.0 * share,
        }
        self._keep([self._row(step, bucket, sums) for bucket, sums in present.items()])
        self.since_log = [Sums() for _ in self.edges]
        self.out_since_log = set()
        return values

    def _row(self, step: int, bucket: int, sums: Sums) -> BandRow:
        low, high = self.bands[bucket].limits() or NO_BAND
        return float(step), float(bucket), sums.mean_loss, low, high

    def _keep(self, rows: list[BandRow]) -> None:
        if self._number % self._every == 0:
            self.logs.append(rows)
        self._number += 1
        if len(self.logs) >= MOST_LOGS:
            self.logs, self._every = self.logs[::2], 2 * self._every

    def end_epoch(self) -> tuple[str, list[BandRow]]:
        """(words, rows) of the epoch that has just ended; the next one begins."""
        without = sum(band.limits() is None for band in self.bands)
        words = epoch_words(
            self.raw.take(),
            list(self.excursions.values()),
            self.skipped,
            self.edges,
            without_band=without,
        )
        rows = [row for log in self.logs for row in log]
        self.excursions, self.skipped, self.logs = {}, 0, []
        self._every, self._number = 1, 0
        return words, rows

    def state_dict(self) -> dict[str, Any]:
        return {
            "bands": [band.state_dict() for band in self.bands],
            "mix": self.mix.state_dict(),
            "raw": self.raw.state_dict(),
            "since_log": [asdict(sums) for sums in self.since_log],
            "out_since_log": sorted(self.out_since_log),
            "excursions": [asdict(excursion) for excursion in self.excursions.values()],
            "skipped": self.skipped,
            "logs": [[list(row) for row in log] for log in self.logs],
            "thinned": [self._every, self._number],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for band, saved in zip(self.bands, state["bands"], strict=True):
            band.load_state_dict(saved)
        self.mix, self.raw = MixSplit(**state["mix"]), RawSplit(**state["raw"])
        self.since_log = [Sums(**sums) for sums in state["since_log"]]
        self.out_since_log = set(state["out_since_log"])
        excursions = [Excursion(**excursion) for excursion in state["excursions"]]
        self.excursions = {(excursion.bucket, excursion.since): excursion for excursion in excursions}
        self.skipped = state["skipped"]
        self.logs = [[tuple(row) for row in log] for log in state["logs"]]
        self._every, self._number = state["thinned"]
