"""One evaluation: what was asked for, and what came of it.

in    figures of all methods, labelled A and B where two drafters are compared
out   Evaluation, which table.py, as_json.py and pictures.py show
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dflash_lightning.decoding.sampling import Sampling
from dflash_lightning.evaluation.bootstrap import Interval, paired_bootstrap
from dflash_lightning.evaluation.figures import Figures, Part, parts
from dflash_lightning.evaluation.measure import Measured, Wanted

PLAIN = "plain"


@dataclass(frozen=True)
class Comparison:
    """Two drafters under one way to decode: B less A, and B over A."""

    kind: str
    """chain, or tree and its budget."""
    tau: Interval
    speed_ratio: float


@dataclass(frozen=True, kw_only=True)
class ChatFacts:
    """How prompts became tokens and where answers end: under another template, figures are others."""

    template: str
    """Digest of template and arguments, as a token store has it."""
    arguments: Mapping[str, Any]
    stop_ids: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    target: str
    drafters: Mapping[str, str]
    """Label -> folder; the label is empty where there is one drafter."""
    dtype: str
    device: str
    block_size: int
    max_new_tokens: int
    batch_size: int
    sampling: Sampling | None
    chats: ChatFacts
    parts: tuple[Part, ...]
    """All prompts first, then each category."""
    comparisons: tuple[Comparison, ...] = ()

    @property
    def whole(self) -> Part:
        return self.parts[0]

    @property
    def drafting(self) -> list[Figures]:
        """All methods but plain decoding, on all prompts."""
        return [figures for figures in self.whole.methods if figures.name != PLAIN]


def evaluation(
    measured: Sequence[Measured],
    wanted: Wanted,
    *,
    target: str,
    drafters: Mapping[str, str],
    dtype: str,
    device: str,
    block_size: int,
    chats: ChatFacts,
) -> Evaluation:
    """Sum up; compares A with B where both are there. `measured` has plain decoding first."""
    found = parts(measured, wanted, block_size=block_size)
    pairs = _pairs([one.method.name for one in measured])
    return Evaluation(
        target=target,
        drafters=drafters,
        dtype=dtype,
        device=device,
        block_size=block_size,
        max_new_tokens=wanted.max_new_tokens,
        batch_size=wanted.batch_size,
        sampling=wanted.sampling,
        chats=chats,
        parts=tuple(found),
        comparisons=tuple(_compared(measured, found[0], *pair) for pair in pairs),
    )


def _pairs(names: Sequence[str]) -> list[tuple[str, str, str]]:
    """(kind, name under A, name under B)"""
    kinds = [name.removesuffix(" A") for name in names if name.endswith(" A")]
    return [(kind, f"{kind} A", f"{kind} B") for kind in kinds if f"{kind} B" in names]


def _compared(measured: Sequence[Measured], whole: Part, kind: str, a: str, b: str) -> Comparison:
    rounds = {one.method.name: [decoded.rounds for decoded in one.in_order] for one in measured}
    ratio = whole.of(b).tokens_per_s / max(whole.of(a).tokens_per_s, 1e-9)
    return Comparison(kind, paired_bootstrap(rounds[a], rounds[b]), ratio)
