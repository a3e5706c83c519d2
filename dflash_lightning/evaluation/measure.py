"""Decodes every prompt with every method, in the same process and in turn.

in    target, methods, tokenised prompts with their categories
out   per method: each prompt's text and rounds, the seconds of each category, the time of each stage
law   a group of prompts is decoded by all methods before the next group comes, and the method that begins
      changes from group to group, so that a machine that slows down slows down all of them
"""

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from dflash_lightning.decoding.batched import decode_batch
from dflash_lightning.decoding.decoded import Decoded
from dflash_lightning.decoding.sampling import Sampling
from dflash_lightning.decoding.stage_times import StageTimes
from dflash_lightning.drafter.model import DFlashDrafter
from dflash_lightning.target.model import Target

WARM_UP_TOKENS = 8


@dataclass(frozen=True)
class Method:
    """A way to decode."""

    name: str
    drafter: DFlashDrafter | None = None
    """None: plain decoding."""
    budget: int | None = None
    """Nodes per tree; None: chains."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What is decoded, the same for all methods."""

    prompts: Sequence[Sequence[int]]
    categories: Sequence[str]
    max_new_tokens: int
    stop_ids: Collection[int] = ()
    batch_size: int = 8
    """Prompts per target pass."""
    block_size: int | None = None
    sampling: Sampling | None = None


@dataclass
class Measured:
    """What one method did, prompt by prompt."""

    method: Method
    decoded: dict[int, Decoded] = field(default_factory=dict)
    """By the number of the prompt."""
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """By category: wall clock, prefill included."""
    times: StageTimes = field(default_factory=StageTimes)

    @property
    def in_order(self) -> list[Decoded]:
        return [self.decoded[number] for number in sorted(self.decoded)]


def measure(
    target: Target,
    methods: Sequence[Method],
    wanted: Wanted,
    *,
    on_group: Callable[[int], None] = lambda prompts: None,
) -> list[Measured]:
    """Run everything; `on_group` hears how many prompts are done with. Raises as decode_batch does."""
    measured = [Measured(method) for method in methods]
    groups = group_prompts([len(p) for p in wanted.prompts], wanted.categories, wanted.batch_size)
    for method in methods:  # the first pass of a process pays for what later ones reuse
        _decode(target, method, wanted, groups[0], limit=min(WARM_UP_TOKENS, wanted.max_new_tokens))
    for turn, group in enumerate(groups):
        first = turn % len(methods)
        for one in (*measured[first:], *measured[:first]):
            started = time.perf_counter()
            decoded = _decode(target, one.method, wanted, group, times=one.times)
            one.seconds[wanted.categories[group[0]]] += time.perf_counter() - started
            one.decoded.update(zip(group, decoded, strict=True))
        on_group(len(group))
    return measured


def group_prompts(lengths: Sequence[int], categories: Sequence[str], batch_size: int) -> list[list[int]]:
    """Numbers of prompts that are decoded together: of one category, and of like lengths."""
    order = sorted(range(len(lengths)), key=lambda i: (categories[i], lengths[i]))
    groups: list[list[int]] = []
    for number in order:
        group = groups[-1] if groups else []
        fits = len(group) < batch_size and group and categories[group[0]] == categories[number]
        if fits:
            group.append(number)
        else:
            groups.append([number])
    return groups


def _decode(
    target: Target,
    method: Method,
    wanted: Wanted,
    group: Sequence[int],
    *,
    limit: int | None = None,
    times: StageTimes | None = None,
) -> list[Decoded]:
    first = 0 if wanted.sampling is None else wanted.sampling.seed
    return decode_batch(
        target,
        method.drafter,
        [wanted.prompts[number] for number in group],
        max_new_tokens=wanted.max_new_tokens if limit is None else limit,
        budget=method.budget,
        stop_ids=wanted.stop_ids,
        block_size=wanted.block_size,
        sampling=wanted.sampling,
        seeds=[first + number for number in group],  # the same luck for a prompt, whatever stands beside it
        times=times,
    )
