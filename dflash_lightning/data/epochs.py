"""The plans of all epochs, and where training stands in them.

in    samples (lengths, supervised counts), PlanConfig, seed
out   plans, the windows that are left, how far along the run is
law   everything follows from (epoch, cursor): resuming recomputes, it replays nothing (spec/batching.md
      section 5)
"""

from dataclasses import dataclass, replace

from dflash_lightning.plan.config import PlanConfig
from dflash_lightning.plan.epoch import Plan, plan_batches_count, plan_epoch
from dflash_lightning.plan.samples import Samples
from dflash_lightning.plan.windows import Window, Windows, cut_windows, windows_in


@dataclass(frozen=True, kw_only=True)
class Position:
    """The whole progress state of the data: the same on every rank and for every world size."""

    epoch: int = 0
    cursor: int = 0
    """Plan batches of this epoch whose window is finished, applied or skipped."""
    steps: int = 0
    """Optimizer steps since the run began, skipped ones included."""
    skipped_batches: int = 0
    """Plan batches, over all epochs, whose window was skipped: they do not advance the learning rate."""

    def after(self, window: Window, *, applied: bool) -> "Position":
        """Where training stands when `window` is finished."""
        lost = 0 if applied else window.stop - window.start
        return replace(
            self, cursor=window.stop, steps=self.steps + 1, skipped_batches=self.skipped_batches + lost
        )


class PlannedEpochs:
    """Plans on demand. Only the last plan is kept, of the others only the number of batches."""

    def __init__(
        self, samples: Samples, config: PlanConfig, *, num_anchors: int, block_size: int, seed: int
    ) -> None:
        self.samples = samples
        self.config = config
        self.num_anchors = num_anchors
        self.block_size = block_size
        self.seed = seed
        self._plan: Plan | None = None
        self._num_batches: dict[int, int] = {}

    def plan(self, epoch: int) -> Plan:
        if self._plan is None or self._plan.epoch != epoch:
            self._plan = plan_epoch(
                self.samples,
                self.config,
                num_anchors=self.num_anchors,
                block_size=self.block_size,
                seed=self.seed,
                epoch=epoch,
            )
            self._num_batches[epoch] = self._plan.num_batches
        return self._plan

    def num_batches(self, epoch: int) -> int:
        """Planned batches of one epoch; differs a little from epoch to epoch."""
        if epoch not in self._num_batches:
            self._num_batches[epoch] = plan_batches_count(
                self.samples,
                self.config,
                num_anchors=self.num_anchors,
                block_size=self.block_size,
                seed=self.seed,
                epoch=epoch,
            )
        return self._num_batches[epoch]

    def windows(self, position: Position, *, world: int, accumulate: int) -> Windows:
        """The optimizer windows left of the position's epoch."""
        return cut_windows(
            self.plan(position.epoch),
            self.samples,
            self.config,
            position.cursor,
            world=world,
            accumulate=accumulate,
        )

    def settled(self, position: Position, *, world: int, accumulate: int) -> Position:
        """A finished epoch is the start of the next one."""
        if position.cursor and not len(self.windows(position, world=world, accumulate=accumulate)):
            return replace(position, epoch=position.epoch + 1, cursor=0)
        return position

    def consumed(self, position: Position) -> int:
        """Plan batches finished since the run began."""
        return sum(self.num_batches(epoch) for epoch in range(position.epoch)) + position.cursor

    def horizon(
        self, position: Position, *, max_epochs: int | None, max_steps: int, world: int, accumulate: int
    ) -> int:
        """Plan batches that will be finished when the run ends: over `max_epochs` epochs, capped by
        `max_steps` optimizer steps (-1: no cap).

        Raises: ValueError when neither limit is set, for then no learning-rate schedule exists.
        """
        if max_epochs in (None, -1) and max_steps < 0:
            raise ValueError(
                "the run has no end: set trainer.max_epochs or trainer.max_steps, "
                "since the learning rate is a function of the share of the run that is done"
            )
        total, steps_left = self.consumed(position), max_steps - position.steps
        epoch, cursor = position.epoch, position.cursor
        while max_epochs in (None, -1) or epoch < (max_epochs or 0):
            batches = self.num_batches(epoch) - cursor
            steps = windows_in(batches, world=world, accumulate=accumulate, tail=self.config.tail)
            if max_steps >= 0 and steps_left < steps:
                return total + max(0, steps_left) * world * accumulate
            total, steps_left = total + batches, steps_left - steps
            epoch, cursor = epoch + 1, 0
            if max_steps >= 0 and steps_left <= 0:
                break
        return total
