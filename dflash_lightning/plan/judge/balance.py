"""How long ranks wait for each other, under three models of what a batch costs.

in    Plan, Samples, PlanConfig, world size, accumulation
out   BalanceFacts
law   every factor is at least 1 and that of one rank is 1; windows are dealt as training deals them

The models count tokens; nothing here was timed on a device (spec/batching.md section 2.4).
"""

from dataclasses import dataclass

import numpy as np

from dflash_lightning.plan.config import PlanConfig
from dflash_lightning.plan.deal import FloatArray, batch_cost, cost_layers
from dflash_lightning.plan.epoch import Plan, block_positions
from dflash_lightning.plan.samples import IntArray, Samples
from dflash_lightning.plan.windows import Window, cut_windows

QUADRATIC_LENGTH = 8192.0
"""Padded length at which attention counts as much as all the rest: a yardstick that no setting moves."""


@dataclass(frozen=True, kw_only=True)
class BalanceFacts:
    """Straggler factors: the slowest rank's load, summed over the waits, by that of the mean rank.

    Ranks wait for each other once per optimizer window, or after every micro-step (`micro_`).
    """

    linear: float
    """A batch costs its padded tokens."""
    quadratic: float
    """Padded tokens * (1 + padded length / 8192), a pessimistic share of attention."""
    blocks: float
    """Padded tokens + block positions: the target and the drafter."""
    micro_linear: float
    micro_quadratic: float
    micro_blocks: float


def judge_balance(
    plan: Plan, samples: Samples, config: PlanConfig, *, world: int, accumulate: int
) -> BalanceFacts:
    """Deal every window of the epoch and compare the ranks.

    Raises: ValueError where `cut_windows` does.
    """
    if world == 1:
        return BalanceFacts(
            linear=1.0, quadratic=1.0, blocks=1.0, micro_linear=1.0, micro_quadratic=1.0, micro_blocks=1.0
        )
    whole = plan.num_batches // (world * accumulate) * (world * accumulate)
    dealt = [_dealt_loads(plan, config, whole, world=world, accumulate=accumulate)]
    rest = cut_windows(plan, samples, config, whole, world=world, accumulate=accumulate)
    dealt += [_window_loads(window, plan, samples) for window in rest]
    window = _straggler(np.concatenate([loads.sum(axis=2) for loads in dealt], axis=1))
    micro = _straggler(np.concatenate([loads.reshape(3, -1, world) for loads in dealt], axis=1))
    return BalanceFacts(
        linear=window[0],
        quadratic=window[1],
        blocks=window[2],
        micro_linear=micro[0],
        micro_quadratic=micro[1],
        micro_blocks=micro[2],
    )


def _straggler(loads: FloatArray) -> list[float]:
    """[models, waits, world] -> [models] sum of the slowest rank's load / sum of the mean rank's."""
    factors: list[float] = (loads.max(axis=2).sum(axis=1) / loads.mean(axis=2).sum(axis=1)).tolist()
    return factors


def _loads(rows: IntArray, padded_length: IntArray, blocks: IntArray) -> FloatArray:
    """[batches] each -> [models, batches]."""
    tokens = rows * padded_length
    quadratic = tokens * (1 + padded_length / QUADRATIC_LENGTH)
    return np.stack([tokens.astype(np.float64), quadratic, (tokens + blocks).astype(np.float64)])


def _dealt_loads(plan: Plan, config: PlanConfig, stop: int, *, world: int, accumulate: int) -> FloatArray:
    """The full windows, batches 0 to `stop` -> [models, windows, slots, world], by the rule of `deal`.

    All windows at once. Which rank and which slot a column and a layer go to, no sum over ranks can tell.
    """
    rows, padded, blocks = np.diff(plan.offsets)[:stop], plan.padded_length[:stop], plan.block_tokens[:stop]
    cost = batch_cost(rows, padded, blocks, config).reshape(-1, world * accumulate)
    turns = cost_layers(cost, world=world)
    turns += np.arange(0, stop, world * accumulate)[:, None, None]
    return _loads(rows, padded, blocks)[:, turns]


def _window_loads(window: Window, plan: Plan, samples: Samples) -> FloatArray:
    """One window as training runs it -> [models, 1, slots, world]. Ghosts cost what their rows cost."""
    batches = [batch for step in window.batches for batch in step]
    ids = [np.where(batch.sample_ids < 0, ~batch.sample_ids, batch.sample_ids) for batch in batches]
    # A sample cut to the last edge has no more supervised tokens than are left.
    blocks = [
        block_positions(
            np.minimum(samples.supervised[rows], plan.edges[-1]),
            num_anchors=plan.num_anchors,
            block_size=plan.block_size,
        ).sum()
        for rows in ids
    ]
    loads = _loads(
        np.array([len(rows) for rows in ids]),
        np.array([batch.padded_length for batch in batches]),
        np.array(blocks),
    )
    return loads.reshape(3, 1, len(window.batches), -1)
