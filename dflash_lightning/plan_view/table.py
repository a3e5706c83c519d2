"""The facts for people, as a page of text.

in    PlanFacts
out   lines; warnings are not among them: the command prints those to standard error
"""

from dflash_lightning.plan.judge.runs import RUN_BINS, RunFacts
from dflash_lightning.plan.summary import BucketSummary, PlanSummary
from dflash_lightning.plan_view.columns import columns, percent, plural, size
from dflash_lightning.plan_view.facts import PlanFacts
from dflash_lightning.plan_view.resources import Memory

Row = tuple[str, str]
"""What it is, and its value in words."""


def as_text(facts: PlanFacts, *, source: str) -> str:
    """The whole page."""
    sections = {
        "Batches": batch_rows(facts),
        "Order": order_rows(facts),
        f"Windows of {plural(facts.judgement.window_batches, 'batch')}": window_rows(facts),
        "Ranks": rank_rows(facts),
        "Run": run_rows(facts),
        "Memory of a rank, estimated": memory_rows(facts.memory),
    }
    width = max(len(name) for rows in sections.values() for name, _ in rows)
    blocks = [_head(facts, source), "\n".join(bucket_lines(facts.judgement.summary))]
    for title, rows in sections.items():
        if rows:
            blocks.append("\n".join([title, *(f"  {name:<{width}}  {value}" for name, value in rows)]))
    return "\n\n".join([*blocks, "\n".join(tenth_lines(facts))])


def _head(facts: PlanFacts, source: str) -> str:
    settings, summary = facts.settings, facts.judgement.summary
    lines = [
        f"plan {summary.digest} of {source}",
        f"seed {settings.seed}, epoch {settings.epoch}; one optimizer step is "
        f"{plural(settings.world, 'rank')} x {plural(settings.accumulate, 'batch')}",
        *settings.notes,
    ]
    if summary.dropped or summary.truncated:
        lines.append(
            f"{summary.dropped:,} samples left out by length, {summary.truncated:,} cut to the last edge"
        )
    if facts.mixes_buckets:
        lines.append("batches mix lengths: a batch counts as of its longest row's bucket")
    return "\n".join(lines)


def bucket_lines(summary: PlanSummary) -> list[str]:
    """A line per bucket and one for all."""
    head = (
        "bucket",
        "padded length",
        "samples",
        "tokens",
        "batches",
        "share",
        "batch size",
        "padding efficiency",
    )
    lines = [
        (str(index), f"{bucket.low:,} - {bucket.high:,}", *_bucket_cells(bucket, summary.batches))
        for index, bucket in enumerate(summary.buckets)
    ]
    rows = summary.samples / summary.batches
    total = (
        *("all", "", f"{summary.samples:,}", f"{summary.tokens:,}", f"{summary.batches:,}", percent(1.0)),
        *(f"{rows:.1f}", percent(summary.padding_efficiency)),
    )
    return columns([head, *lines, total])


def _bucket_cells(bucket: BucketSummary, batches: int) -> tuple[str, ...]:
    counts = (f"{bucket.samples:,}", f"{bucket.tokens:,}", f"{bucket.batches:,}")
    if not bucket.batches:
        return (*counts, percent(0.0), "-", "-")
    return (
        *counts,
        percent(bucket.batches / batches),
        f"{bucket.samples / bucket.batches:.1f}",
        percent(bucket.tokens / bucket.padded_tokens),
    )


def batch_rows(facts: PlanFacts) -> list[Row]:
    summary, dynamic = facts.judgement.summary, facts.without_static_shapes
    largest = (
        f"{summary.max_batch_tokens:,} padded tokens; {summary.max_batch_block_tokens:,} block positions"
    )
    rows = [("largest", largest), ("over budget", plural(facts.judgement.over_budget, "batch"))]
    if facts.lost_to_tail:
        rows.append(
            ("lost to the tail", f"{plural(facts.lost_to_tail, 'sample')} of the epoch (plan.tail drop)")
        )
    if dynamic is not None:
        more = summary.batches / dynamic.batches - 1
        cost = (
            f"{summary.batches:,} batches at padding efficiency {percent(summary.padding_efficiency)}, "
            f"without {dynamic.batches:,} at {percent(dynamic.padding_efficiency)}: {more:+.1%} batches"
        )
        rows.append(("static shapes cost", cost))
    return rows


def order_rows(facts: PlanFacts) -> list[Row]:
    runs, batches = facts.judgement.runs, facts.judgement.summary.batches
    equal = f"{runs.equal_neighbours:,} pairs ({percent(runs.equal_neighbours / batches)})"
    return [
        ("longest run", f"{plural(runs.longest_run, 'batch')} of one bucket in a row"),
        ("final run", f"{plural(runs.final_run, 'batch')}, of bucket {runs.final_bucket}"),
        ("equal neighbours", f"{equal}; {runs.forced_neighbours:,} unavoidable"),
        (f"runs of bucket {runs.largest_bucket}", _runs_of_largest(runs)),
        ("alternating pairs (ABAB)", f"{percent(runs.alternating_share)} of all stretches of four batches"),
    ]


def _runs_of_largest(runs: RunFacts) -> str:
    """Where the batches of the largest bucket sit: "of its batches 82.3% alone, 17.7% in 2s"."""
    total = sum(runs.largest_in_runs)
    shares = [
        f"{percent(batches / total)} {_bin_name(low, high)}"
        for (low, high), batches in zip(RUN_BINS, runs.largest_in_runs, strict=True)
        if batches
    ]
    return f"of its batches {', '.join(shares)}"


def _bin_name(low: int, high: int | None) -> str:
    if low == high:
        return "alone" if low == 1 else f"in {low}s"
    return f"in {low} or more" if high is None else f"in {low} to {high}"


def window_rows(facts: PlanFacts) -> list[Row]:
    mix, shuffled = facts.judgement.mix, facts.shuffled
    return [
        ("TV to the epoch's mix", f"mean {mix.tv_mean:.3f}, worst {mix.tv_max:.3f}"),
        ("the same, shuffled", f"mean {shuffled.tv_mean:.3f}, worst {shuffled.tv_max:.3f}"),
        ("floor", f"{mix.tv_floor:.3f}: the least that whole batches allow"),
        (
            "of one bucket only",
            f"{percent(mix.single_bucket_share)} (shuffled: {percent(shuffled.single_bucket_share)}; "
            f"estimate for equal buckets {percent(mix.single_bucket_estimate)})",
        ),
        (
            "drift over the epoch",
            f"{100 * mix.drift:.2f} points, in the bucket and the tenth where it is worst",
        ),
    ]


def rank_rows(facts: PlanFacts) -> list[Row]:
    balance, world = facts.judgement.balance, facts.settings.world
    if world == 1:
        return [("straggler factor", "1.000: a single rank waits for nobody")]
    return [
        ("straggler, linear", f"{balance.linear:.3f} per window, {balance.micro_linear:.3f} per micro-step"),
        (
            "straggler, quadratic",
            f"{balance.quadratic:.3f} per window, {balance.micro_quadratic:.3f} per micro-step",
        ),
        ("straggler, blocks", f"{balance.blocks:.3f} per window, {balance.micro_blocks:.3f} per micro-step"),
    ]


def run_rows(facts: PlanFacts) -> list[Row]:
    run, rates = facts.run, facts.rates
    rows = [("optimizer steps", f"{facts.judgement.steps_per_epoch:,} in this epoch")]
    if run.steps is not None:
        about = "" if run.exact else "about "
        rows.append(("steps of the run", f"{about}{run.steps:,}"))
    if rates is not None:
        rows.append(
            ("learning rate", f"first {rates.first:.3g}, peak {rates.peak:.3g}, last {rates.last:.3g}")
        )
    return rows


def memory_rows(memory: Memory | str | None) -> list[Row]:
    """None: no target is known; a sentence: why nothing can be said."""
    if not isinstance(memory, Memory):
        return [] if memory is None else [("all", memory)]
    parts = ", ".join(
        f"{name.replace('_', ' ')} {size(getattr(memory, name))}"
        for name in ("hidden_states", "target", "drafter", "mask", "head")
    )
    return [
        ("batch that needs most", f"{size(memory.batch)}: {memory.rows} x {memory.padded_length:,} tokens"),
        ("its parts", parts),
        (
            "hidden states",
            f"{size(memory.largest_hidden_states)} for the largest batch, "
            f"{size(memory.window_hidden_states)} for a window, "
            f"{size(memory.epoch_hidden_states)} to store an epoch",
        ),
        (
            "beside it",
            f"drafter with moments {size(memory.drafter_weights)}, target {size(memory.target_weights)}",
        ),
    ]


def tenth_lines(facts: PlanFacts) -> list[str]:
    """Bucket shares over the epoch: equal figures in a row are an even mix."""
    tenths = facts.judgement.mix.tenths
    head = ("bucket", *(f"{i}." for i in range(1, len(tenths) + 1)))
    rows = [
        (str(bucket), *(f"{100 * share:.1f}" for share in shares))
        for bucket, shares in enumerate(zip(*tenths, strict=True))
    ]
    return ["Percent of the batches of each tenth of the epoch", *columns([head, *rows])]
