"""What to save and what to keep: plain values that travel to the writer with the snapshot.

law   everything here is frozen, pickles, and holds no tensor and no secret
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

Kind = Literal["step", "epoch", "best", "exception", "signal", "end"]
Mode = Literal["min", "max"]
Facts = Mapping[str, str | int | float | bool | Mapping[str, str]]
ALL = -1


@dataclass(frozen=True, kw_only=True)
class Retention:
    """Which checkpoints of a run stay. The newest always does, and so does what any of the rules keeps."""

    keep_last: int = 1
    """Newest checkpoints that stay; -1: all."""
    keep_best: int = 1
    """Best checkpoints by `monitor` that stay; -1: all that have a finite value; without monitor: none."""
    every_n_steps: int | None = None
    """Checkpoints whose step is a multiple of this stay for ever; null: none."""
    monitor: str | None = None
    """Name of the metric that decides what is best, such as val/tau; null: none."""
    mode: Mode = "min"
    """min: a smaller value is better; max: a larger one."""

    def __post_init__(self) -> None:
        for name in ("keep_last", "keep_best"):
            if getattr(self, name) < ALL:
                raise ValueError(f"{name} must be 0 or more, or -1 for all, got {getattr(self, name)}")
        if self.every_n_steps is not None and self.every_n_steps < 1:
            raise ValueError(f"every_n_steps must be 1 or more, or null, got {self.every_n_steps}")
        if self.mode not in get_args(Mode):
            raise ValueError(f"mode must be min or max, got {self.mode!r}")


@dataclass(frozen=True, kw_only=True)
class SaveJob:
    """One save, as the training thread asked for it. Equal on every rank."""

    step: int
    """Optimizer steps taken."""
    epoch: int
    kind: Kind
    """Why it is saved."""
    run_id: str
    """Checkpoints with this id are the run's own: only those are ever deleted by it."""
    must_keep: bool = False
    """Not replaced in the queue by a newer ordinary save."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Logged values at this step, the monitored one among them."""
    facts: Facts = field(default_factory=dict)
    """For the manifest: plan_digest, world_size and the like; versions are added, text is redacted."""
    retention: Retention = field(default_factory=Retention)
    size_hint: int = 0
    """Bytes to expect; 0 if unknown."""
    session: str = ""
    """Of one start of a run: within it a later step is newer, whichever is stored first; "": unknown."""

    def __post_init__(self) -> None:
        if self.step < 0 or self.epoch < 0:
            raise ValueError(f"step and epoch must be 0 or more, got step {self.step} of epoch {self.epoch}")
        if self.kind not in get_args(Kind):
            raise ValueError(f"kind must be one of {', '.join(get_args(Kind))}, got {self.kind!r}")
        if not self.run_id:
            raise ValueError("run_id must not be empty: it tells whose checkpoints may be deleted")
