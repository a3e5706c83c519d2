"""From rounds and seconds to the figures that are quoted.

in    what each method did, prompt by prompt; the prompts, for prompt lookup
out   Figures per method and category
law   pure; every method is set beside plain decoding of the same prompts in the same run, and beside prompt
      lookup on the same texts
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dflash_lightning.decoding.acceptance import AcceptanceLength, acceptance_length
from dflash_lightning.decoding.decoded import Decoded
from dflash_lightning.decoding.lookup import lookup_rounds
from dflash_lightning.decoding.stage_times import StageTime
from dflash_lightning.evaluation.measure import Measured, Wanted


@dataclass(frozen=True)
class Figures:
    """One method on one set of prompts."""

    name: str
    prompts: int
    acceptance: AcceptanceLength
    histogram: tuple[int, ...]
    """Entry i: rounds that committed i + 1 tokens."""
    slots: tuple[float, ...]
    """Entry i: share of rounds that committed more than i + 1 tokens, so that the draft of slot i + 1 stood.
    They sum up to the pooled acceptance length less 1."""
    new_tokens: int
    seconds: float
    """Wall clock, prefill included."""
    speed_up: float
    """Tokens/s over those of plain decoding, prefill included on both sides."""
    equal_texts: int
    """Prompts whose text is that of plain decoding, token for token."""
    stages: Mapping[str, StageTime]
    """Of prefill, draft, verify; empty for one category, since all are timed together."""

    @property
    def tokens_per_s(self) -> float:
        return self.new_tokens / max(self.seconds, 1e-9)


@dataclass(frozen=True)
class Part:
    """All methods on the prompts of one category, or on all."""

    category: str
    prompts: int
    methods: tuple[Figures, ...]
    """Plain decoding first."""
    lookup: AcceptanceLength
    """Prompt lookup on the texts of plain decoding."""

    def of(self, name: str) -> Figures:
        return next(figures for figures in self.methods if figures.name == name)


def parts(measured: Sequence[Measured], wanted: Wanted, *, block_size: int) -> list[Part]:
    """Over all prompts first, then by category where there are several.

    Args:
        measured: plain decoding first.
        block_size: of prompt lookup: it proposes as many tokens as the drafter.
    """
    names = sorted(set(wanted.categories))
    stages = [one.times.spent() for one in measured]
    everything = _part(measured, wanted, names, name="all", stages=stages, block_size=block_size)
    none: list[dict[str, StageTime]] = [{} for _ in measured]
    split = names if len(names) > 1 else []
    return [
        everything,
        *(_part(measured, wanted, [n], name=n, stages=none, block_size=block_size) for n in split),
    ]


def _part(
    measured: Sequence[Measured],
    wanted: Wanted,
    categories: Sequence[str],
    *,
    name: str,
    stages: Sequence[Mapping[str, StageTime]],
    block_size: int,
) -> Part:
    numbers = [i for i, category in enumerate(wanted.categories) if category in categories]
    plain = measured[0]
    own = [plain.decoded[i] for i in numbers]
    speed = _tokens(own) / max(_seconds(plain, categories), 1e-9)
    methods = []
    for one, spent in zip(measured, stages, strict=True):
        decoded, seconds = [one.decoded[i] for i in numbers], _seconds(one, categories)
        methods.append(
            summed_up(one.method.name, decoded, own, seconds=seconds, plain_speed=speed, stages=spent)
        )
    lookup = [
        lookup_rounds(wanted.prompts[i], plain.decoded[i].token_ids, block_size=block_size) for i in numbers
    ]
    return Part(name, len(numbers), tuple(methods), acceptance_length(lookup))


def summed_up(
    name: str,
    decoded: Sequence[Decoded],
    plain: Sequence[Decoded],
    *,
    seconds: float,
    plain_speed: float,
    stages: Mapping[str, StageTime],
) -> Figures:
    """The figures of one method; `plain` are the same prompts decoded plainly, at `plain_speed` tokens/s."""
    rounds = [one.rounds for one in decoded]
    counts = histogram(rounds)
    tokens = _tokens(decoded)
    return Figures(
        name=name,
        prompts=len(decoded),
        acceptance=acceptance_length(rounds),
        histogram=counts,
        slots=slot_shares(counts),
        new_tokens=tokens,
        seconds=seconds,
        speed_up=tokens / max(seconds, 1e-9) / max(plain_speed, 1e-9),
        equal_texts=sum(a.token_ids == b.token_ids for a, b in zip(decoded, plain, strict=True)),
        stages=stages,
    )


def histogram(rounds_per_prompt: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Rounds by tokens committed: entry i counts those of i + 1."""
    counts = Counter(committed for rounds in rounds_per_prompt for committed in rounds)
    return tuple(counts[committed] for committed in range(1, max(counts, default=0) + 1))


def slot_shares(counts: Sequence[int]) -> tuple[float, ...]:
    """Share of rounds in which the draft of slot 1, 2, ... stood. A round that a stop token or the limit cut
    short counts as far as it went."""
    total = sum(counts)
    return tuple(sum(counts[slot:]) / total for slot in range(1, len(counts)))


def _tokens(decoded: Sequence[Decoded]) -> int:
    return sum(len(one.token_ids) for one in decoded)


def _seconds(measured: Measured, categories: Sequence[str]) -> float:
    return float(sum(measured.seconds[category] for category in categories))
