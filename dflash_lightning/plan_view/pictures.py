"""A plan on one page: what each stretch of the epoch holds, and what it costs.

in    PlanFacts
out   a PNG of 1800 x 1500 pixels
law   every title says what is to be seen; buckets differ in lightness, so the page survives greyscale
"""

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from dflash_lightning.plan.judge.mix import window_counts
from dflash_lightning.plan.judge.runs import run_lengths
from dflash_lightning.plan.samples import IntArray
from dflash_lightning.plan.summary import final_run_warning
from dflash_lightning.plan_view.columns import percent, plural
from dflash_lightning.plan_view.facts import PlanFacts

STRETCHES = 100
LEAST_BATCHES = 10
"""A stretch of fewer batches shows single batches, no mix."""
DARK, LIGHT, RED = "#31356e", "#b8d1e6", "#c0392b"
_SCALES = ((1e9, "billion"), (1e6, "million"), (1e3, "thousand"), (1, "tokens"))
MOST_LABELS = 10
"""Buckets that have room for their figures beside each other."""
_BINS = (1, 2, 3, 4, 5, 10, 100, 1000)
"""Run lengths are counted from each of these up to the next."""


def draw_plan(facts: PlanFacts, output: Path, *, source: str) -> None:
    """Draw and save. Raises OSError where the file cannot be written."""
    with plt.rc_context({"font.size": 11, "axes.titlesize": 12, "hatch.linewidth": 0.6}):
        figure, axes = plt.subplot_mosaic(
            [["mix", "mix"], ["runs", "windows"], ["padding", "balance"]],
            figsize=(15, 12.5),
            layout="constrained",
        )
        summary, settings = facts.judgement.summary, facts.settings
        figure.suptitle(
            f"{source}: {summary.samples:,} samples in {summary.batches:,} batches, "
            f"{plural(facts.judgement.steps_per_epoch, 'optimizer step')} of {settings.world} x "
            f"{settings.accumulate}; plan {summary.digest}, epoch {summary.epoch}",
            fontsize=13,
        )
        draw_mix(axes["mix"], facts)
        axes["mix"].set_title(mix_finding(facts))
        axes["mix"].legend(
            handles=legend_of_buckets(facts),
            title=f"bucket{' of the longest row' if facts.mixes_buckets else ''}: tokens of its samples",
            loc="upper center",
            bbox_to_anchor=(0.5, -0.13),
            ncols=8,
            frameon=False,
        )
        _draw_runs(axes["runs"], facts)
        _draw_windows(axes["windows"], facts)
        draw_padding(axes["padding"], facts)
        _draw_balance(axes["balance"], facts)
        figure.savefig(output, dpi=120)
        plt.close(figure)


def bucket_colours(num_buckets: int) -> list[Any]:
    """Dark for short, light for long: the order holds in greyscale."""
    return list(plt.get_cmap("viridis")(np.linspace(0.05, 0.97, num_buckets)))


def draw_mix(axis: Axes, facts: PlanFacts) -> None:
    """Share of each bucket's batches along the epoch, stacked from short to long."""
    plan = facts.plan
    shares = stretch_shares(plan.bucket, len(plan.edges))
    colours = bucket_colours(len(plan.edges))
    edges = np.linspace(0, 100, len(shares) + 1)
    below = np.zeros(len(shares))
    for bucket, colour in enumerate(colours):
        above = below + 100 * shares[:, bucket]
        # A step per stretch: a line from one to the next would show a mix that no stretch has.
        axis.stairs(above, edges, baseline=below, fill=True, color=colour)
        axis.stairs(above, edges, baseline=None, color="white", linewidth=0.6)
        below = above
    axis.set(xlim=(0, 100), ylim=(0, 100), xlabel="position in the epoch (%)", ylabel="share of batches (%)")


def stretch_shares(labels: IntArray, num_buckets: int) -> Any:
    """[N] labels -> [stretches, buckets] share of each bucket in equal stretches of the epoch."""
    stretches = max(1, min(STRETCHES, len(labels) // LEAST_BATCHES))
    parts = np.array_split(labels, stretches)
    return np.array([np.bincount(part, minlength=num_buckets) / len(part) for part in parts])


def legend_of_buckets(facts: PlanFacts) -> list[Any]:
    """A patch of each bucket's colour with its tokens."""
    buckets = facts.judgement.summary.buckets
    return [
        plt.Rectangle((0, 0), 1, 1, color=colour, label=f"{i}: {bucket.low:,} - {bucket.high:,}")
        for i, (bucket, colour) in enumerate(zip(buckets, bucket_colours(len(buckets)), strict=True))
    ]


def mix_finding(facts: PlanFacts) -> str:
    """The title of the mix: a long run at the end, or how even it is."""
    summary, mix = facts.judgement.summary, facts.judgement.mix
    if final_run_warning(summary):
        share = percent(summary.final_run / summary.batches)
        return f"Bucket mix: the last {share} of the epoch is bucket {summary.final_bucket} alone"
    return f"Bucket mix: no tenth of the epoch is off by more than {100 * mix.drift:.2f} points"


def _draw_runs(axis: Axes, facts: PlanFacts) -> None:
    """How long batches of one bucket follow each other, counted in batches."""
    runs = run_lengths(facts.plan.bucket)
    in_bin = np.bincount(np.searchsorted(_BINS, runs, side="right") - 1, weights=runs, minlength=len(_BINS))
    shares = 100 * in_bin / runs.sum()
    bars = axis.bar(range(len(_BINS)), shares, color=DARK)
    axis.bar_label(bars, [f"{share:.1f}" if share else "0" for share in shares], padding=2)
    axis.set_xticks(range(len(_BINS)), [*"1234", "5-9", "10-99", "100-999", "1000+"])
    axis.set(xlabel="run length (batches of one bucket in a row)", ylabel="share of all batches (%)")
    axis.set_ylim(0, 1.12 * shares.max())
    longest = plural(facts.judgement.runs.longest_run, "batch")
    axis.set_title(f"Runs: the longest stretch of one bucket is {longest}")


def _draw_windows(axis: Axes, facts: PlanFacts) -> None:
    """Distance of each window's mix to the epoch's, over the epoch."""
    mix, shuffled = facts.judgement.mix, facts.shuffled
    distance = window_distances(facts)
    place = 100 * (np.arange(len(distance)) + 0.5) / len(distance)
    dot = 3 if len(distance) > 200 else 8
    axis.plot(place, distance, ".", markersize=dot, color="#6f86b5", label="one window")
    axis.axhline(mix.tv_mean, color=DARK, linewidth=2.5, label=f"mean: {mix.tv_mean:.3f}")
    axis.axhline(
        shuffled.tv_mean,
        color=RED,
        linestyle="--",
        linewidth=2,
        label=f"shuffled, mean: {shuffled.tv_mean:.3f}",
    )
    axis.axhline(mix.tv_floor, color="black", linestyle=":", linewidth=2, label=f"floor: {mix.tv_floor:.3f}")
    axis.set(xlim=(0, 100), xlabel="position in the epoch (%)", ylabel="TV to the epoch's mix (0 to 1)")
    axis.set_ylim(0, 1.45 * max(float(distance.max()), shuffled.tv_mean, 0.01))
    axis.legend(loc="upper center", ncols=2)
    axis.set_title(window_finding(facts))


def window_finding(facts: PlanFacts) -> str:
    """The title of the windows: what the order gains over chance."""
    window, mix, shuffled = facts.judgement.window_batches, facts.judgement.mix, facts.shuffled
    if window == 1:
        return "Windows: one batch each, so one bucket each"
    if not mix.tv_mean or not shuffled.tv_mean:
        return "Windows: every one has the epoch's mix"
    closer, word = shuffled.tv_mean / mix.tv_mean, "closer to"
    if closer < 1:
        closer, word = 1 / closer, "further from"
    if closer < 1.05:
        return f"Windows of {window} batches are as far from the epoch's mix as shuffled ones"
    return f"Windows of {window} batches: {closer:.1f} times {word} the epoch's mix than shuffled"


def window_distances(facts: PlanFacts) -> Any:
    """[full windows] total-variation distance of each to the epoch; of the only one where none is full."""
    labels, num_buckets = facts.plan.bucket, len(facts.plan.edges)
    size = min(facts.judgement.window_batches, len(labels))
    counts = window_counts(labels, num_buckets, size)[: len(labels) // size]
    share = np.bincount(labels, minlength=num_buckets) / len(labels)
    return 0.5 * np.abs(counts / size - share).sum(axis=1)


def draw_padding(axis: Axes, facts: PlanFacts) -> None:
    """Real tokens and padding of each bucket."""
    summary = facts.judgement.summary
    real = np.array([bucket.tokens for bucket in summary.buckets])
    padded = np.array([bucket.padded_tokens for bucket in summary.buckets])
    scale, unit = next(pair for pair in _SCALES if padded.max() >= pair[0])
    places = np.arange(len(real))
    axis.bar(places, real / scale, color=DARK, label="real tokens")
    bars = axis.bar(
        places, (padded - real) / scale, bottom=real / scale, color=LIGHT, hatch="////", edgecolor="black",
        linewidth=0.5, label="padding",
    )  # fmt: skip
    efficiency = real / np.maximum(padded, 1)
    named = [percent(share) if total else "-" for share, total in zip(efficiency, padded, strict=True)]
    axis.bar_label(bars, named if len(named) <= MOST_LABELS else [""] * len(named), padding=2)
    ticks = places[:: -(-len(places) // MOST_LABELS)]
    axis.set_xticks(ticks, [f"{i}\nto {summary.buckets[i].high:,}" for i in ticks])
    axis.set(xlabel="bucket, and its longest sample (tokens)", ylabel=f"tokens of the epoch ({unit})")
    axis.set_ylim(0, 1.3 * padded.max() / scale)
    on_bars = "on the bars: padding efficiency" if len(named) <= MOST_LABELS else None
    axis.legend(loc="upper left", title=on_bars, ncols=2)
    axis.set_title(f"Padding: {percent(1 - summary.padding_efficiency)} of all computed tokens")


def _draw_balance(axis: Axes, facts: PlanFacts) -> None:
    """Waiting under three models of cost."""
    if facts.settings.world == 1:
        axis.set_title("Balance: a single rank waits for nobody")
        axis.text(0.5, 0.5, "nothing to balance", ha="center", va="center", transform=axis.transAxes)
        axis.set_axis_off()
        return
    balance = facts.judgement.balance
    window = [100 * (factor - 1) for factor in (balance.linear, balance.quadratic, balance.blocks)]
    micro = [
        100 * (factor - 1) for factor in (balance.micro_linear, balance.micro_quadratic, balance.micro_blocks)
    ]
    for offset, values, style, label in (
        (-0.2, window, {"color": DARK}, "once per optimizer step"),
        (0.2, micro, {"color": LIGHT, "hatch": "////", "edgecolor": "black", "linewidth": 0.5},
         "after every micro-step"),
    ):  # fmt: skip
        bars = axis.bar(np.arange(3) + offset, values, width=0.38, label=label, **style)
        axis.bar_label(bars, [f"{1 + value / 100:.3f}" for value in values], padding=2)
    names = ("linear\npadded tokens", "quadratic\n+ attention", "blocks\n+ block positions")
    axis.set_xticks(range(3), names)
    axis.set(xlabel="model of what a batch costs", ylabel="slowest rank over mean rank (%)")
    axis.set_ylim(0, 1.45 * max(*window, *micro, 1.0))
    axis.legend(loc="upper left", title="ranks wait (on the bars: straggler factor)", ncols=2)
    axis.set_title(
        f"Balance: the slowest of {facts.settings.world} ranks does {min(window):.1f} to {max(window):.1f}% "
        "more than the mean"
    )
