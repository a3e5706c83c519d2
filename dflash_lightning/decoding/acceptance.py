"""Acceptance lengths of many decoded prompts, in the ways they are quoted.

in    tokens committed per round, one list per prompt
out   AcceptanceLength
law   tau is tokens committed per target pass, bonus token included; the prefill's token counts in no round

Called tau in the papers, where some pool all rounds and some average per prompt first (spec/dflash.md 4.5):
both are here, under different names.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import nan

from dflash_lightning.decoding.walk import first_rounds


@dataclass(frozen=True)
class AcceptanceLength:
    """Acceptance lengths over a set of prompts; NaN where no round was made."""

    prompts: int
    """Prompts that made at least one round."""
    rounds: int
    """Target passes after the prefills."""
    tokens: int
    """Tokens committed by these rounds."""
    pooled: float
    """tokens / rounds: long answers weigh more."""
    mean: float
    """Mean over prompts of each prompt's own tau: every prompt weighs the same."""
    first32: float
    """Pooled, had every answer ended after 32 new tokens: before small models start to repeat themselves."""


def acceptance_length(rounds_per_prompt: Sequence[Sequence[int]]) -> AcceptanceLength:
    """Sum up the rounds of decode_chain, walk_rounds or lookup_rounds, one sequence per prompt."""
    active = [rounds for rounds in rounds_per_prompt if len(rounds) > 0]
    beginnings = [first_rounds(rounds, new_tokens=32) for rounds in active]
    return AcceptanceLength(
        prompts=len(active),
        rounds=sum(map(len, active)),
        tokens=sum(map(sum, active)),
        pooled=pooled(active),
        mean=sum(map(tau, active)) / len(active) if active else nan,
        first32=pooled(beginnings),
    )


def tau(rounds: Sequence[int]) -> float:
    """Tokens committed per round of one decoding; NaN without rounds."""
    return sum(rounds) / len(rounds) if rounds else nan


def pooled(rounds_per_prompt: Sequence[Sequence[int]]) -> float:
    """Tokens over rounds, all prompts together; NaN without rounds."""
    return tau([committed for rounds in rounds_per_prompt for committed in rounds])
