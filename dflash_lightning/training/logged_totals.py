"""Sums over all optimizer steps since the last log, and over the whole run.

law   a value logged every n steps covers all n; the sums are the same on every rank and travel with the
      checkpoint, so that a resumed run logs the values of one that never stopped
"""

import time
from dataclasses import asdict
from typing import Any

from dflash_lightning.data.window_facts import WindowFacts
from dflash_lightning.training.window_sums import Sums


class LoggedTotals:
    """Holds Sums between two logs, and counts the real tokens trained on."""

    def __init__(self) -> None:
        self.totals = Sums()
        self.tokens = 0
        self._step_tokens = 0
        self._started = time.monotonic()
        self._seconds = 0.0

    def add(self, totals: Sums, facts: WindowFacts) -> None:
        self.totals = self.totals + totals
        self._step_tokens = int(facts.tokens.sum())
        self.tokens += self._step_tokens
        now = time.monotonic()
        self._seconds, self._started = now - self._started, now

    def take(self) -> dict[str, float]:
        """The ratios since the last call, which starts the next stretch."""
        values = {**self.totals.ratios(), "train/tokens": float(self.tokens)}
        self.totals = Sums()
        return values

    def tokens_per_second(self) -> float:
        """Real tokens of all ranks in the last step, per second of it; for the progress bar only."""
        return self._step_tokens / self._seconds if self._seconds else 0.0

    def state_dict(self) -> dict[str, Any]:
        return {"totals": asdict(self.totals), "tokens": self.tokens}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.totals = Sums(**state["totals"])
        self.tokens = state["tokens"]
