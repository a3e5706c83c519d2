"""Keeps the target's devices evenly busy and just far enough ahead, and says what training waits for."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_info, rank_zero_warn

from dflash_lightning.target.balance.depth import DepthBounds
from dflash_lightning.target.balance.interval import IntervalSums
from dflash_lightning.target.balance.slow_rank import SlowRule
from dflash_lightning.target.balance.states_from import StatesFrom
from dflash_lightning.target.dispatch import Delivery, Dispatch, PrefetchPolicy
from dflash_lightning.training.gather import rows_of_all_ranks
from dflash_lightning.training.module import DFlashModule
from dflash_lightning.training.prefetch.prefetch_watch import PrefetchWatch

GIB = 1 << 30


class PrefetchBalance(Callback):
    """Owns the balance of the prefetch pipeline: who computes what, what is trained next, how far ahead.

    Logs, over all optimizer steps since the last log, all ranks together (device i: those of rank 0 first):

        prefetch/queue_depth_{i}    batches ahead of training on target device i; queue_depth: on all
        prefetch/imbalance          padded tokens ahead: fullest queue over the mean queue; 1 is even
        prefetch/wait_s, wait_pct   seconds that training waited for batches, and percent of its time
        prefetch/tokens_in_flight   padded tokens ahead
        prefetch/gib_in_flight      GiB of hidden states; peak_gib: the most of one rank so far
        prefetch/dispatched_device_{i}_pct, dispatched_bucket_{i}_pct
                                    percent of the batches dealt to device i, or of bucket i
        prefetch/depth              batches that each device may be ahead

    With several ranks wait_s, wait_pct, tokens_in_flight, dispatched_bucket_{i}_pct and, where a rank has
    several devices, imbalance also by rank (`prefetch/wait_s_rank_{r}`), and

        prefetch/wait_imbalance     waiting time: longest of a rank over the ranks' mean

    Ranks talk once a log, never in between. Warns when one rank holds the others up, and says which of feed,
    target (or the disk that hidden states are read from) and drafter is too slow, and how many target devices
    a drafter needs.

    Without it the pipeline runs as `model.prefetch` says; with it that counts no more, except a depth of 0.

    Args:
        dispatch: round_robin (each device in turn) or least_loaded (fewest padded tokens to do).
        delivery: in_order (the plan's order: reproducible) or ready_first (whatever is ready in the window).
            With one target device a rank there is no difference.
        depth: Batches that each target device may be ahead in the beginning.
        min_depth: Fewest; smaller depths are tried, to save memory, once training has not waited for long.
        max_depth: Most; equal to min_depth: the depth stays.
        memory_gib: Hidden states of a rank that may exist at a time; null: only depth bounds them.
        slow_rank: When a rank counts as slow.
    """

    def __init__(
        self,
        dispatch: Dispatch = "least_loaded",
        delivery: Delivery = "ready_first",
        depth: int = 2,
        min_depth: int = 1,
        max_depth: int = 8,
        memory_gib: float | None = 4.0,
        slow_rank: SlowRule = SlowRule(),  # noqa: B008  (frozen)
    ) -> None:
        if memory_gib is not None and memory_gib <= 0:
            raise ValueError(
                f"PrefetchBalance.memory_gib must be above 0 GiB, got {memory_gib}; null leaves depth as the "
                "only bound"
            )
        memory = None if memory_gib is None else int(memory_gib * GIB)
        self.bounds = DepthBounds(least=min_depth, most=max_depth, memory_bytes=memory)
        if not min_depth <= depth <= max_depth:
            raise ValueError(
                f"PrefetchBalance.depth must be between min_depth {min_depth} and max_depth {max_depth}, "
                f"got {depth}; a pipeline is switched off by model.prefetch.depth 0, without this callback"
            )
        self.policy = PrefetchPolicy(dispatch=dispatch, delivery=delivery, depth=depth, memory_bytes=memory)
        self.slow_rank = slow_rank
        self._watch: PrefetchWatch | None = None
        self._loaded: dict[str, Any] | None = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        assert isinstance(pl_module, DFlashModule)
        if stage == "fit" and (pl_module.prefetch is None or pl_module.prefetch.depth):
            pl_module.set_prefetch(self.policy)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, DFlashModule)
        self._watch = None
        if pl_module.pipeline is None:
            rank_zero_info("PrefetchBalance: the target runs inside the step, there is nothing to balance")
            return
        self._watch = PrefetchWatch(
            self.bounds, self.slow_rank, depth=self.policy.depth, states_from=states_from(pl_module)
        )
        if self._loaded and self._loaded["configured"] == self.policy.depth:  # else the new setting wins
            self._watch.load_state_dict(self._loaded["found"])
        self._loaded = None  # for this run alone
        pl_module.pipeline.set_policy(replace(self.policy, depth=self._watch.depth.depth))
        self._sums = IntervalSums(len(pl_module.data.edges))
        self._resume(pl_module)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, DFlashModule)
        if self._watch and pl_module.pipeline:
            self._sums.pause(pl_module.pipeline.counters(), self._seconds())

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._resume(pl_module)

    def _resume(self, module: LightningModule) -> None:
        assert isinstance(module, DFlashModule)
        if self._watch and module.pipeline:
            self._since = time.perf_counter()
            self._sums.go_on(module.pipeline.counters())

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        assert isinstance(pl_module, DFlashModule)
        pipeline, watch = pl_module.pipeline, self._watch
        if not pl_module.step_finished or watch is None or pipeline is None:
            return
        self._sums.step(pipeline.counters(), self._seconds())
        if not pl_module.log_now:
            return

        def gather(row: Sequence[float]) -> Sequence[Sequence[float]]:
            ours = torch.tensor(row, dtype=torch.float64, device=trainer.strategy.root_device)
            rows: list[list[float]] = rows_of_all_ranks(trainer, ours).tolist()
            return rows

        values, lines = watch.look(self._sums.take(), gather)
        pl_module.log_dict(values)
        for line in lines:
            rank_zero_warn(line)
        if pipeline.policy.depth != watch.depth.depth:
            pipeline.set_depth(watch.depth.depth)

    def _seconds(self) -> float:
        """Since the last call."""
        before, self._since = self._since, time.perf_counter()
        return self._since - before

    def state_dict(self) -> dict[str, Any]:
        if self._watch is None:
            return self._loaded or {}
        return {"configured": self.policy.depth, "found": self._watch.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._loaded = state_dict


def states_from(module: DFlashModule) -> StatesFrom:
    """What the pipeline of `module` waits for."""
    if module.hidden_states is not None:
        return "disk"
    return "own devices" if module.target_devices else "drafter's device"
