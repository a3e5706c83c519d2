"""Draft and verify on held-out prompts, as a server would: what acceptance a drafter has by now.

in    the validation rows of a token store, a target, a drafter in training
out   rounds of every prompt, from all ranks; values to log
law   a prompt is decoded by one rank; values are of all prompts, equal on every rank and for any number
      of ranks
"""

import copy
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from lightning import Trainer

from dflash_lightning.data.store import TokenStore
from dflash_lightning.decoding.acceptance import acceptance_length
from dflash_lightning.decoding.batched import decode_batch
from dflash_lightning.decoding.lookup import lookup_rounds
from dflash_lightning.drafter.model import DFlashDrafter
from dflash_lightning.target.model import Target
from dflash_lightning.training.gather import texts_of_all_ranks

Rounds = Sequence[Sequence[int]]
"""Tokens committed by each round, for every prompt."""


@dataclass(frozen=True, kw_only=True)
class Decoding:
    """How held-out prompts are decoded."""

    prompts: int = 16
    """Spread evenly over the validation rows; fewer where these are fewer."""
    max_new_tokens: int = 128
    """Longest answer."""
    at_once: int = 8
    """Prompts side by side in one target pass: bounds the memory of their caches."""

    def __post_init__(self) -> None:
        for name in ("prompts", "max_new_tokens", "at_once"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")


def held_out_prompts(store: TokenStore, count: int, *, longest: int | None = None) -> list[list[int]]:
    """At most `count` beginnings of validation rows, each up to the first token that the target wrote.

    A row with nothing to continue, or one longer than `longest` tokens, is left out.
    """
    rows = len(store.samples("validation").lengths)
    chosen = np.unique(np.linspace(0, rows - 1, count).round().astype(int)).tolist() if rows else []
    prompts = []
    for row in chosen:
        ids, mask = store.row("validation", row)
        first = int(mask.argmax())
        fits = longest is None or first <= longest
        if first and mask[first] and fits:  # without a prompt, or an answer, there is nothing to continue
            prompts.append(ids[:first].tolist())
    return prompts


def decode_held_out(
    trainer: Trainer,
    target: Target,
    drafter: DFlashDrafter,
    prompts: Sequence[Sequence[int]],
    stop_ids: Collection[int],
    how: Decoding,
) -> tuple[Rounds, Rounds]:
    """Rounds of the drafter, and of prompt lookup on the same texts. A collective.

    The drafter is decoded as it will be served: its weights rounded to the target's type.
    """
    served = copy.deepcopy(drafter).to(device=target.device, dtype=target.dtype).eval()
    mine = prompts[trainer.global_rank :: trainer.world_size]
    drafted, looked_up = [], []
    with torch.autocast(target.device.type, enabled=False):
        for start in range(0, len(mine), how.at_once):
            group = mine[start : start + how.at_once]
            answers = decode_batch(
                target, served, group, max_new_tokens=how.max_new_tokens, stop_ids=stop_ids
            )
            for prompt, answer in zip(group, answers, strict=True):
                drafted.append(answer.rounds)
                size = served.config.block_size
                looked_up.append(lookup_rounds(prompt, answer.token_ids, block_size=size))
    texts = texts_of_all_ranks(trainer, json.dumps([drafted, looked_up]))
    ranks = [json.loads(text) for text in texts]
    return [r for rank in ranks for r in rank[0]], [r for rank in ranks for r in rank[1]]


def decoded_values(stage: str, drafted: Rounds, looked_up: Rounds) -> dict[str, float]:
    """What is logged, as `{stage}/...`; NaN where no round was made."""
    ours, baseline = acceptance_length(drafted), acceptance_length(looked_up)
    return {
        f"{stage}/decode_tau": ours.pooled,
        f"{stage}/decode_tau_mean": ours.mean,
        f"{stage}/decode_tau_first32": ours.first32,
        f"{stage}/lookup_tau": baseline.pooled,
    }
