"""An evaluation for people, as a page of text.

in    Evaluation
out   lines
"""

import json
from collections.abc import Sequence
from math import isnan, nan

from dflash_lightning.decoding.acceptance import AcceptanceLength
from dflash_lightning.decoding.stage_times import STAGES
from dflash_lightning.evaluation.bootstrap import fewest_prompts
from dflash_lightning.evaluation.figures import Figures, Part
from dflash_lightning.evaluation.result import PLAIN, Comparison, Evaluation
from dflash_lightning.plan_view.columns import columns, percent, plural

HEAD = ("method", "tau pooled", "tau mean", "first 32", "tokens/s", "speed-up", "drafting", "own text")


def as_text(found: Evaluation) -> str:
    """The whole page."""
    blocks = [
        _settings(found),
        "\n".join(columns([HEAD, *method_rows(found.whole)], left=1)),
        _block("Milliseconds per call", stage_rows(found.whole.methods)),
        _block("Rounds by tokens committed", histogram_rows(found.drafting)),
        _block("Rounds in which the draft of a slot stood", slot_rows(found.drafting)),
    ]
    if len(found.parts) > 1:
        blocks.append(_block("Pooled tau and speed-up by category", category_rows(found.parts)))
    if found.comparisons:
        rows = comparison_rows(found.comparisons)
        few = [words for one in found.comparisons if (words := why_undecided(one))]
        blocks.append("\n".join([_block("B against A, the same prompts", rows), *dict.fromkeys(few)]))
    return "\n\n".join(blocks)


def _block(title: str, rows: Sequence[Sequence[str]]) -> str:
    return "\n".join([title, *(f"  {line}" for line in columns(rows, left=1))])


def _settings(found: Evaluation) -> str:
    names = [f"drafter {label}".strip() for label in found.drafters]
    rows = [
        ("target", f"{found.target}, {found.dtype} on {found.device}"),
        *zip(names, found.drafters.values(), strict=True),
        ("prompts", f"{found.whole.prompts}, {found.batch_size} at a time in one target pass"),
        ("chats", how_rendered(found)),
        ("answers", f"at most {plural(found.max_new_tokens, 'token')}, {how_drawn(found)}"),
        ("blocks", f"{found.block_size} slots, the anchor included"),
    ]
    return "\n".join(columns(rows, left=2))


def how_rendered(found: Evaluation) -> str:
    chats = found.chats
    given = f", {json.dumps(dict(chats.arguments), ensure_ascii=False)}" if chats.arguments else ""
    ends = ", ".join(map(str, chats.stop_ids)) or "none"
    return f"template {chats.template[:12]}{given}; ids that end an answer: {ends}"


def how_drawn(found: Evaluation) -> str:
    sampling = found.sampling
    if sampling is None or sampling.greedy:
        return "greedy"
    top_k = f", top-k {sampling.top_k}" if sampling.top_k else ""
    top_p = f", top-p {sampling.top_p}" if sampling.top_p < 1 else ""
    return f"sampled at temperature {sampling.temperature:g}{top_k}{top_p}, seed {sampling.seed}"


def method_rows(part: Part) -> list[tuple[str, ...]]:
    """One row per method, prompt lookup last."""
    rows = [
        (
            figures.name,
            *_lengths(figures.acceptance),
            f"{figures.tokens_per_s:.1f}",
            f"{figures.speed_up:.2f}",
            percent(figures.stages["draft"].share if figures.stages else 0.0, 0),
            f"{figures.equal_texts}/{figures.prompts}",
        )
        for figures in part.methods
    ]
    return [*rows, ("prompt lookup", *_lengths(part.lookup), "", "", "", "")]


def _lengths(acceptance: AcceptanceLength) -> tuple[str, str, str]:
    return tuple(  # type: ignore[return-value]
        length(value) for value in (acceptance.pooled, acceptance.mean, acceptance.first32)
    )


def length(value: float) -> str:
    """An acceptance length; a dash where no round was made."""
    return "-" if isnan(value) else f"{value:.2f}"


def stage_rows(methods: Sequence[Figures]) -> list[tuple[str, ...]]:
    """What one call of each stage took on average; a dash where it never ran."""
    rows: list[tuple[str, ...]] = [("", *STAGES)]
    for figures in methods:
        each = [figures.stages[stage].ms_per_call if figures.stages else nan for stage in STAGES]
        rows.append((figures.name, *("-" if isnan(ms) else f"{ms:.1f}" for ms in each)))
    return rows


def histogram_rows(methods: Sequence[Figures]) -> list[tuple[str, ...]]:
    """Percent of rounds that committed 1, 2, ... tokens."""
    widest = max((len(figures.histogram) for figures in methods), default=0)
    rows = [("", *map(str, range(1, widest + 1)))]
    for figures in methods:
        rounds = max(1, sum(figures.histogram))
        rows.append((figures.name, *_filled([percent(n / rounds) for n in figures.histogram], widest)))
    return rows


def slot_rows(methods: Sequence[Figures]) -> list[tuple[str, ...]]:
    """Percent of rounds in which the draft of slot 1, 2, ... stood."""
    widest = max((len(figures.slots) for figures in methods), default=0)
    rows = [("slot", *map(str, range(1, widest + 1)))]
    return [*rows, *((f.name, *_filled([percent(share) for share in f.slots], widest)) for f in methods)]


def _filled(cells: Sequence[str], width: int) -> list[str]:
    return [*cells, *["0.0%"] * (width - len(cells))]


def category_rows(parts: Sequence[Part]) -> list[tuple[str, ...]]:
    names = [figures.name for figures in parts[0].methods if figures.name != PLAIN]
    rows = [
        ("category", "prompts", *(text for name in names for text in (name, "speed-up")), "prompt lookup")
    ]
    for part in parts[1:]:
        cells = [
            text
            for figures in map(part.of, names)
            for text in (length(figures.acceptance.pooled), f"{figures.speed_up:.2f}")
        ]
        rows.append((part.category, str(part.prompts), *cells, length(part.lookup.pooled)))
    return rows


def comparison_rows(compared: Sequence[Comparison]) -> list[tuple[str, ...]]:
    """What is gained, and how sure that is."""
    first = compared[0].tau
    rows: list[tuple[str, ...]] = [("", "tau B - A", f"{first.confidence:.0%} interval", "", "speed B / A")]
    for one in compared:
        between = "-" if isnan(one.tau.low) else f"{one.tau.low:+.3f} to {one.tau.high:+.3f}"
        verdict = "" if one.tau.decided else "may be chance" if one.tau.enough else "too few prompts"
        gained = "-" if isnan(one.tau.difference) else f"{one.tau.difference:+.3f}"
        rows.append((one.kind, gained, between, verdict, f"{one.speed_ratio:.2f}"))
    return rows


def why_undecided(one: Comparison) -> str:
    """Empty where there are prompts enough."""
    if one.tau.enough:
        return ""
    fewest, chance = fewest_prompts(one.tau.confidence), 1 - one.tau.confidence
    return (
        f"  {plural(one.tau.prompts, 'prompt')} made rounds under both. Fewer than {fewest} decide nothing:\n"
        f"  by chance alone, all of them favour the same drafter in more than {chance:.0%} of cases."
    )
