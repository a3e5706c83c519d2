"""Everything there is to know of a plan before training, put together.

in    Plan, Samples, PlanConfig, world size, accumulation
out   Judgement
"""

from dataclasses import dataclass, field

import numpy as np

from dflash_lightning.plan.config import PlanConfig
from dflash_lightning.plan.epoch import Plan
from dflash_lightning.plan.judge.balance import BalanceFacts, judge_balance
from dflash_lightning.plan.judge.mix import MixFacts, judge_mix
from dflash_lightning.plan.judge.runs import RunFacts, judge_runs
from dflash_lightning.plan.measure import row_lengths
from dflash_lightning.plan.samples import IntArray, Samples
from dflash_lightning.plan.summary import PlanSummary, summarize
from dflash_lightning.plan.windows import windows_in

_CHUNK = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """One epoch's plan, judged for one world size and accumulation."""

    summary: PlanSummary
    runs: RunFacts
    mix: MixFacts
    balance: BalanceFacts
    world: int
    accumulate: int
    steps_per_epoch: int
    """Optimizer steps of the epoch, which are its windows."""
    over_budget: int
    """Batches above a limit of the settings: none, or the packing is at fault."""
    rounding_share: float
    """Share of the padded tokens that comes from padding each sample alone, by `pad_multiple` and
    `static_shapes`; what is left of the padding comes from different lengths in one batch."""
    config: PlanConfig = field(repr=False)

    @property
    def window_batches(self) -> int:
        """Batches behind one optimizer step."""
        return self.world * self.accumulate


def judge(plan: Plan, samples: Samples, config: PlanConfig, *, world: int, accumulate: int) -> Judgement:
    """Judge a plan made from these samples and settings.

    Raises: ValueError where `cut_windows` does.
    """
    summary = summarize(plan, samples)
    return Judgement(
        summary=summary,
        runs=judge_runs(plan.bucket, len(plan.edges)),
        mix=judge_mix(plan.bucket, len(plan.edges), world * accumulate),
        balance=judge_balance(plan, samples, config, world=world, accumulate=accumulate),
        world=world,
        accumulate=accumulate,
        steps_per_epoch=windows_in(plan.num_batches, world=world, accumulate=accumulate, tail=config.tail),
        over_budget=over_budget(plan, config),
        rounding_share=(rounded_tokens(plan, samples, config) - summary.tokens) / summary.padded_tokens,
        config=config,
    )


def over_budget(plan: Plan, config: PlanConfig) -> int:
    """Batches above a limit. One row with more block positions than the limit is legal: it cannot be cut."""
    limits, rows = config.batch_limits, np.diff(plan.offsets)
    above = (rows > limits.rows) | (rows * limits.row_cost(plan.padded_length) > limits.tokens)
    above |= (plan.block_tokens > limits.block_tokens) & (rows > 1)
    return int(above.sum())


def rounded_tokens(plan: Plan, samples: Samples, config: PlanConfig) -> int:
    """Tokens of the plan's samples when each is padded alone, by `pad_multiple` and `static_shapes`."""
    in_chunks = (samples.lengths[i : i + _CHUNK] for i in range(0, len(samples), _CHUNK))
    everything = sum(_rounded(lengths, plan, config) for lengths in in_chunks)
    return everything - _rounded(samples.lengths[plan.dropped], plan, config)


def _rounded(lengths: IntArray, plan: Plan, config: PlanConfig) -> int:
    return int(row_lengths(lengths, plan.edges, config).sum(dtype=np.int64))
