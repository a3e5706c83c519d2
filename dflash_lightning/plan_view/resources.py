"""An ESTIMATE of what one batch keeps in memory on one rank, from shapes alone.

in    Plan, Samples, Geometry, ModelSettings
out   Memory: bytes of the batch that needs most, of its parts, and of the hidden states of a window
law   `hidden_states` is exactly the size of the tensor of taps; the rest counts the tensors that the backward
      pass keeps, and leaves out what is small (rotary tables, norm scales), kernels' workspace and fragments

b rows, s padded length, q block positions a row (slots x block size), h hidden size, k taps, n layers of the
drafter, A and K widths of its queries and keys, I its SwiGLU, V vocabulary; t bytes of a target value, c of a
value inside the drafter's layers, whose residual stream and norms are fp32:

hidden_states   b s k h t
target          b s (4 h + 3 I_target) t     one layer at a time, nothing is kept; before the drafter runs
drafter         b n layer + b s h (8 + c) + 8 b q h (+ b s k h c where the taps are copied to fp32), with
                layer = q [h (16 + 2 c) + A (8 + 2 c) + 4 I c] + (s + q) K (8 + 2 c), and with a dense mask
                q (s + q) c more; with activation checkpointing b (4 n q h + layer) instead of b n layer
mask            b q (s + q)                  one byte a pair, for sdpa; a block mask is small
head            chunk V (c + 4) + 2 p h c    logits of a chunk, and p = b q (B - 1) / B drafted states

A batch needs hidden_states + max(target, drafter + mask + head). Beside it stay 16 bytes for each weight of
the drafter (weight, gradient, two moments; 2 more for its bf16 copy) and t for each of the target's that the
rank holds.
"""

from dataclasses import dataclass

import numpy as np

from dflash_lightning.plan.epoch import Plan, block_positions
from dflash_lightning.plan.samples import IntArray, Samples
from dflash_lightning.plan_view.geometry import Geometry
from dflash_lightning.plan_view.model_settings import ModelSettings


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes, estimated. The parts are those of the batch that needs most."""

    batch: int
    """hidden_states + max(target, drafter + mask + head)."""
    rows: int
    padded_length: int
    hidden_states: int
    target: int
    drafter: int
    mask: int
    head: int
    largest_hidden_states: int
    """Hidden states of the batch with most padded tokens."""
    window_hidden_states: int
    """Hidden states of all batches of the fullest window, over all ranks."""
    epoch_hidden_states: int
    """What storing them for a whole epoch would take, without padding."""
    drafter_weights: int
    """Weights, gradients and moments of the drafter."""
    target_weights: int


def estimate_memory(
    plan: Plan, samples: Samples, geometry: Geometry, settings: ModelSettings, *, window_batches: int
) -> Memory:
    """The batch of the plan that needs most, by the formulas above."""
    rows, padded = np.diff(plan.offsets), plan.padded_length
    parts = batch_parts(
        rows, padded, _positions(plan, samples, settings), geometry, settings, block_size=plan.block_size
    )
    total = parts["hidden_states"] + np.maximum(
        parts["target"], parts["drafter"] + parts["mask"] + parts["head"]
    )
    most = int(total.argmax())
    states = parts["hidden_states"]
    real = np.minimum(samples.lengths, plan.edges[-1])[plan.sample_ids].sum()
    copy = 2 if settings.compute_bytes == 2 else 0
    return Memory(
        batch=int(total[most]),
        rows=int(rows[most]),
        padded_length=int(padded[most]),
        **{name: int(values[most]) for name, values in parts.items()},
        largest_hidden_states=int(states.max()),
        window_hidden_states=int(np.add.reduceat(states, range(0, len(states), window_batches)).max()),
        epoch_hidden_states=int(real) * geometry.taps * geometry.hidden * settings.target_bytes,
        drafter_weights=(16 + copy) * geometry.drafter_parameters,
        target_weights=settings.target_bytes * target_parameters_of_a_rank(geometry, settings),
    )


def target_parameters_of_a_rank(geometry: Geometry, settings: ModelSettings) -> int:
    """All of them; of layers that ranks hold together its part, and one that is whole while it computes."""
    if settings.target_ranks == 1:
        return geometry.target_parameters
    layers = geometry.target_depth * geometry.target_layer_parameters
    part = -(-layers // settings.target_ranks)
    return geometry.target_parameters - layers + part + geometry.target_layer_parameters


def batch_parts(
    rows: IntArray,
    padded: IntArray,
    positions: IntArray,
    geometry: Geometry,
    settings: ModelSettings,
    *,
    block_size: int,
) -> dict[str, IntArray]:
    """[batches] rows, padded lengths and block positions of a row -> [batches] bytes of each part."""
    g, t, c = geometry, settings.target_bytes, settings.compute_bytes
    tokens, slots = rows * padded, rows * positions
    pairs = slots * (padded + positions) * settings.dense_mask
    layer = slots * (g.hidden * (16 + 2 * c) + g.query_width * (8 + 2 * c) + 4 * g.intermediate * c)
    layer += (tokens + slots) * g.key_width * (8 + 2 * c) + pairs * c
    layers = g.layers * layer
    if settings.activation_checkpointing:
        layers = g.layers * 4 * slots * g.hidden + layer
    context = tokens * g.hidden * (8 + c) + (tokens * g.taps * g.hidden * c if c > t else 0)
    drafted = slots // block_size * (block_size - 1)
    chunk = np.minimum(settings.head_chunk, drafted)
    return {
        "hidden_states": tokens * g.taps * g.hidden * t,
        "target": tokens * (4 * g.hidden + 3 * g.target_intermediate) * t,
        "drafter": layers + context + 8 * slots * g.hidden,
        "mask": pairs,
        "head": chunk * g.vocabulary * (c + 4) + 2 * drafted * g.hidden * c,
    }


def _positions(plan: Plan, samples: Samples, settings: ModelSettings) -> IntArray:
    """[batches] block positions of every row: as many as its fullest row needs, or always all anchors."""
    if settings.fixed_slots:
        return np.full(plan.num_batches, plan.num_anchors * plan.block_size)
    supervised = np.minimum(samples.supervised, plan.edges[-1])[plan.sample_ids]
    fullest = np.maximum.reduceat(supervised, plan.offsets[:-1])
    return block_positions(fullest, num_anchors=plan.num_anchors, block_size=plan.block_size)
