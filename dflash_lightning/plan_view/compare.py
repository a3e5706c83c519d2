"""Strategies side by side: the same samples and settings, planned once for each name.

in    Samples, PlanSettings, names joined by commas
out   facts by name; a table for people, plain values for programs
law   every strategy is judged on the accumulation window: by how far a window's mix is from the epoch's,
      against its own batches shuffled and against the least that whole batches allow
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dflash_lightning.plan.samples import Samples
from dflash_lightning.plan_view.as_json import as_values
from dflash_lightning.plan_view.columns import columns, percent, plural
from dflash_lightning.plan_view.facts import PlanFacts, gather_facts
from dflash_lightning.plan_view.names import with_strategy
from dflash_lightning.plan_view.settings import PlanSettings

_ORDER_HEAD = ("", "batches", "padding efficiency", "longest run", "final run", "equal neighbours", "drift")
_WINDOW_HEAD = (
    *("", "TV mean", "TV max", "shuffled", "floor", "TV / shuffled", "one bucket"),
    *("linear", "quadratic", "blocks"),
)


def compared_settings(settings: PlanSettings, names: str) -> dict[str, PlanSettings]:
    """The settings of each strategy in "credit,shuffle,...". Raises ValueError where a name is unknown."""
    texts = [name.strip() for name in names.split(",") if name.strip()]
    if len(set(texts)) < len(texts) or not texts:
        raise ValueError(f"--compare takes different names joined by commas, got {names!r}")
    window = settings.window_batches
    return {
        text: replace(settings, plan=with_strategy(settings.plan, text, window_batches=window))
        for text in texts
    }


def compare(samples: Samples, settings: Mapping[str, PlanSettings]) -> dict[str, PlanFacts]:
    """Plan and judge each."""
    return {name: gather_facts(samples, each, None) for name, each in settings.items()}


def compare_values(compared: Mapping[str, PlanFacts]) -> list[dict[str, Any]]:
    """For each strategy all that the plan alone would print, and its name."""
    return [{"strategy": name, **as_values(facts)} for name, facts in compared.items()]


def compare_text(compared: Mapping[str, PlanFacts], *, source: str) -> str:
    """Two tables with a line per strategy, and how to read them."""
    settings = next(iter(compared.values())).settings
    orders = [_ORDER_HEAD, *(_order_cells(name, facts) for name, facts in compared.items())]
    windows = [_WINDOW_HEAD, *(_window_cells(name, facts) for name, facts in compared.items())]
    return "\n".join(
        [
            f"{plural(len(compared), 'strategy')} for {source}; seed {settings.seed}, epoch {settings.epoch}",
            *settings.notes,
            "",
            *columns(orders, left=1),
            "",
            f"Windows of {plural(settings.window_batches, 'batch')}: {plural(settings.world, 'rank')} x "
            f"accumulation {settings.accumulate}; straggler factors on the right",
            *columns(windows, left=1),
            "",
            *_reading(compared),
        ]
    )


def _order_cells(name: str, facts: PlanFacts) -> tuple[str, ...]:
    summary, runs = facts.judgement.summary, facts.judgement.runs
    return (
        name,
        f"{summary.batches:,}",
        percent(summary.padding_efficiency),
        f"{runs.longest_run:,}",
        f"{runs.final_run:,}",
        percent(runs.equal_neighbours / summary.batches),
        percent(facts.judgement.mix.drift, 2),
    )


def _window_cells(name: str, facts: PlanFacts) -> tuple[str, ...]:
    mix, shuffled, balance = facts.judgement.mix, facts.shuffled, facts.judgement.balance
    ratio = against_shuffled(facts)
    return (
        name,
        *(f"{tv:.3f}" for tv in (mix.tv_mean, mix.tv_max, shuffled.tv_mean, mix.tv_floor)),
        "-" if ratio is None else f"{ratio:.2f}",
        percent(mix.single_bucket_share),
        *(f"{factor:.3f}" for factor in (balance.linear, balance.quadratic, balance.blocks)),
    )


def against_shuffled(facts: PlanFacts) -> float | None:
    """Mean TV / mean TV of the same batches shuffled; None where shuffling is perfect (one bucket)."""
    chance = facts.shuffled.tv_mean
    return facts.judgement.mix.tv_mean / chance if chance else None


def _reading(compared: Mapping[str, PlanFacts]) -> list[str]:
    """How to read TV, and who interleaves worse than chance. In a window of one batch nobody can."""
    if next(iter(compared.values())).settings.window_batches == 1:
        return ["A window of one batch holds one bucket in any order: raise --accumulate or --world-size."]
    mixed = [name for name, facts in compared.items() if facts.mixes_buckets]
    worse = [name for name, facts in compared.items() if (against_shuffled(facts) or 0) > 1]
    return [
        "TV: share of a window's batches that ought to come from another bucket to match the epoch. Each",
        "strategy is judged on its own buckets, against its own batches shuffled (mean), and against the",
        "floor that whole batches allow. TV / shuffled below 1: interleaving over the window beats chance.",
        *(
            [f"By the longest row of each batch, since they mix lengths: {', '.join(mixed)}."]
            if mixed
            else []
        ),
        *([f"Worse than chance: {', '.join(worse)}."] if worse else []),
    ]
