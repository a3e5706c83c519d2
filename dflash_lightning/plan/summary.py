"""What a plan will do, told before training: padding, bucket shares, and how well the order mixes.

in    Plan, Samples
out   PlanSummary (facts), describe (a table for people), final_run_warning
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from dflash_lightning.plan.epoch import Plan
from dflash_lightning.plan.judge.runs import judge_runs
from dflash_lightning.plan.samples import IntArray, Samples

_CHUNK = 1 << 15
FINAL_RUN_SHARE = 0.01
"""A plan that ends with one bucket for more than this share of the epoch is worth a warning."""


@dataclass(frozen=True, kw_only=True)
class BucketSummary:
    """One bucket's part of a plan."""

    low: int
    """Shortest padded length, in tokens."""
    high: int
    """Longest padded length: the edge."""
    samples: int
    batches: int
    tokens: int
    """Real tokens."""
    padded_tokens: int
    """Tokens of the batches, padding included."""


@dataclass(frozen=True, kw_only=True)
class PlanSummary:
    """One epoch's plan in numbers."""

    epoch: int
    digest: str
    samples: int
    batches: int
    tokens: int
    padded_tokens: int
    max_batch_tokens: int
    max_batch_block_tokens: int
    longest_run: int
    """Most batches of one bucket in a row."""
    final_run: int
    """Batches of one bucket in a row at the end of the epoch."""
    final_bucket: int
    equal_neighbours: int
    """Pairs of neighbouring batches of one bucket."""
    forced_neighbours: int
    """Such pairs that no order could avoid."""
    dropped: int
    """Samples that are left out, as oversize or as too short."""
    too_short: int
    """Those of them that are too short."""
    truncated: int
    """Samples that count as cut to the last edge."""
    buckets: tuple[BucketSummary, ...]

    @property
    def padding_efficiency(self) -> float:
        """Real tokens / padded tokens."""
        return self.tokens / self.padded_tokens


def summarize(plan: Plan, samples: Samples) -> PlanSummary:
    """The facts of a plan; `samples` are those it was made from."""
    rows = np.diff(plan.offsets)
    padded = rows * plan.padded_length
    per_bucket = _bucket_summaries(plan, samples, rows, padded)
    runs = judge_runs(plan.bucket, len(plan.edges))
    return PlanSummary(
        epoch=plan.epoch,
        digest=plan.digest,
        samples=len(plan.sample_ids),
        batches=plan.num_batches,
        tokens=sum(bucket.tokens for bucket in per_bucket),
        padded_tokens=sum(bucket.padded_tokens for bucket in per_bucket),
        max_batch_tokens=int(padded.max()),
        max_batch_block_tokens=int(plan.block_tokens.max()),
        longest_run=runs.longest_run,
        final_run=runs.final_run,
        final_bucket=runs.final_bucket,
        equal_neighbours=runs.equal_neighbours,
        forced_neighbours=runs.forced_neighbours,
        dropped=len(plan.dropped),
        too_short=int((samples.lengths[plan.dropped] <= plan.edges[-1]).sum()),
        truncated=plan.truncated,
        buckets=per_bucket,
    )


def _bucket_summaries(
    plan: Plan, samples: Samples, rows: IntArray, padded: IntArray
) -> tuple[BucketSummary, ...]:
    real = _real_tokens(plan, samples)
    summaries = []
    for bucket, (below, edge) in enumerate(pairwise((0, *plan.edges))):
        mine = plan.bucket == bucket
        summaries.append(
            BucketSummary(
                low=below + 1,
                high=edge,
                samples=int(rows[mine].sum()),
                batches=int(mine.sum()),
                tokens=int(real[mine].sum()),
                padded_tokens=int(padded[mine].sum()),
            )
        )
    return tuple(summaries)


def _real_tokens(plan: Plan, samples: Samples) -> IntArray:
    """[batches] tokens of each, padding left out. In chunks: the lengths of all batches are a large array."""
    real = np.empty(plan.num_batches, np.int64)
    for start in range(0, plan.num_batches, _CHUNK):
        offsets = plan.offsets[start : start + _CHUNK + 1]
        lengths = samples.lengths[plan.sample_ids[offsets[0] : offsets[-1]]]
        np.minimum(lengths, plan.edges[-1], out=lengths)
        real[start : start + _CHUNK] = np.add.reduceat(lengths, offsets[:-1] - offsets[0])
    return real


def final_run_warning(summary: PlanSummary) -> str | None:
    """A warning when the epoch ends with one bucket alone for over 1 % of it, and another order would not.

    The comparison is with the longest run that no order can avoid: with one bucket there is nothing to mix.
    """
    most = max(bucket.batches for bucket in summary.buckets)
    unavoidable = -(-most // (summary.batches - most + 1))
    if summary.final_run <= max(FINAL_RUN_SHARE * summary.batches, 2 * unavoidable):
        return None
    bucket = summary.buckets[summary.final_bucket]
    share = summary.final_run / summary.batches
    return (
        f"the last {summary.final_run:,} of {summary.batches:,} batches ({share:.1%} of the epoch) all come "
        f"from bucket {summary.final_bucket} ({bucket.low:,} to {bucket.high:,} tokens): every epoch ends on "
        "one length only; plan.order Credit spreads every bucket evenly"
    )


def describe(summary: PlanSummary) -> str:
    """The summary as a table, one line per bucket."""
    return "\n".join(
        [
            f"plan {summary.digest}, epoch {summary.epoch}: "
            f"{summary.samples:,} samples, {summary.tokens:,} tokens{_left_out(summary)}",
            _COLUMNS.format("bucket", "tokens", "samples", "batches", "share", "rows", "fill"),
            *(_bucket_line(i, bucket, summary.batches) for i, bucket in enumerate(summary.buckets)),
            f"{summary.batches:,} batches, padding efficiency {summary.padding_efficiency:.1%}; "
            f"largest batch {summary.max_batch_tokens:,} tokens, "
            f"{summary.max_batch_block_tokens:,} block positions",
            f"order: longest run of one bucket {summary.longest_run:,}, last run {summary.final_run:,}, "
            f"equal neighbours {summary.equal_neighbours:,} ({summary.forced_neighbours:,} unavoidable)",
        ]
    )


_COLUMNS = "{:>6} {:>15} {:>11} {:>10} {:>7} {:>6} {:>6}"


def _left_out(summary: PlanSummary) -> str:
    oversize = summary.dropped - summary.too_short
    told = ""
    if oversize + summary.truncated:
        told = f", {oversize:,} samples dropped and {summary.truncated:,} cut as oversize"
    if summary.too_short:
        told += f", {summary.too_short:,} samples left out as too short"
    return told


def _bucket_line(index: int, bucket: BucketSummary, batches: int) -> str:
    return _COLUMNS.format(
        index,
        f"{bucket.low:,} - {bucket.high:,}",
        f"{bucket.samples:,}",
        f"{bucket.batches:,}",
        f"{bucket.batches / batches:.1%}",
        f"{bucket.samples / max(1, bucket.batches):.1f}",
        f"{bucket.tokens / max(1, bucket.padded_tokens):.1%}",
    )
