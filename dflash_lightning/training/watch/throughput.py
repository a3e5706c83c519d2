"""Sums behind the throughput metrics: what was trained on, and how long it took.

law   every value covers all optimizer steps since the last log, skipped ones included: their time was spent
"""

from dataclasses import asdict, dataclass, field
from typing import Any

from dflash_lightning.data.window_facts import WindowFacts


@dataclass(kw_only=True)
class ThroughputSums:
    """Over all ranks, except the seconds: those are this rank's own."""

    steps: int = 0
    samples: int = 0
    tokens: int = 0
    padded_tokens: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    """By stage of StepClock."""

    def add(self, facts: WindowFacts, seconds: dict[str, float]) -> None:
        """Count one optimizer step that took `seconds`."""
        self.steps += 1
        self.samples += int(facts.samples.sum())
        self.tokens += int(facts.tokens.sum())
        self.padded_tokens += int(facts.padded_tokens.sum())
        self.seconds = {stage: self.seconds.get(stage, 0.0) + more for stage, more in seconds.items()}

    def values(self) -> dict[str, float]:
        """What to log; nothing where no time has passed."""
        whole = sum(self.seconds.values())
        if not whole:
            return {}
        return {
            "throughput/tokens_per_s": self.tokens / whole,
            "throughput/padded_tokens_per_s": self.padded_tokens / whole,
            "throughput/samples_per_s": self.samples / whole,
            "throughput/step_s": whole / self.steps,
            **{f"time/{stage}_pct": 100 * part / whole for stage, part in self.seconds.items()},
        }

    def state_dict(self) -> dict[str, Any]:
        return asdict(self)
