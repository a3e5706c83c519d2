"""What a user should hear of before training, each with its exact figure and the way out.

in    Judgement
out   messages; none for a plan that is as good as its samples allow
"""

from dflash_lightning.plan.judge.judgement import Judgement
from dflash_lightning.plan.packing import BucketPacking
from dflash_lightning.plan.summary import BucketSummary, final_run_warning

ROUNDING_SHARE = 0.05
"""Rounding that makes up more than this share of the padded tokens is worth a warning."""


def plan_warnings(judgement: Judgement) -> list[str]:
    """All that applies, worst first."""
    # Where batches mix lengths, a batch's bucket is only that of its longest row.
    of_buckets = isinstance(judgement.config.packing, BucketPacking)
    return [
        *filter(None, [final_run_warning(judgement.summary)]),
        *(_large_bucket(judgement) if of_buckets else []),
        *(_rare_buckets(judgement) if of_buckets else []),
        *_rounding(judgement),
    ]


def _large_bucket(judgement: Judgement) -> list[str]:
    runs, summary = judgement.runs, judgement.summary
    bucket = summary.buckets[runs.largest_bucket]
    alone = bucket.batches == summary.batches  # with one bucket there is nothing to mix
    if alone or not runs.forced_neighbours:
        return []
    return [
        f"{_named(runs.largest_bucket, bucket)} makes {bucket.batches:,} of {summary.batches:,} batches "
        f"({bucket.batches / summary.batches:.1%}): in any order at least {runs.forced_neighbours:,} of them "
        "follow one of the same bucket; finer plan.edges within it spread its lengths over several buckets"
    ]


def _rare_buckets(judgement: Judgement) -> list[str]:
    """One batch per window cannot mix, so there it is no news."""
    summary, windows = judgement.summary, judgement.steps_per_epoch
    rare = {i: bucket for i, bucket in enumerate(summary.buckets) if 0 < bucket.batches < windows}
    if not rare or judgement.window_batches == 1:
        return []
    named = ", ".join(f"{_named(i, bucket)} has {bucket.batches:,}" for i, bucket in rare.items())
    size, enough = judgement.window_batches, -(-summary.batches // min(b.batches for b in rare.values()))
    return [
        f"fewer batches than the epoch has windows ({windows:,} of {size:,} batches): {named}; "
        "the windows left over never see such a bucket; merge it with a neighbour (plan.super_buckets, or "
        f"other plan.edges), or accumulate until a window has {enough:,} batches"
    ]


def _rounding(judgement: Judgement) -> list[str]:
    if judgement.rounding_share <= ROUNDING_SHARE:
        return []
    if judgement.config.static_shapes:
        return [
            "padding every sample to its bucket's edge (plan.static_shapes) makes "
            f"{judgement.rounding_share:.1%} of all padded tokens; more buckets waste less, and plan.edges "
            "optimal places them best"
        ]
    return [
        f"rounding lengths up to a multiple of {judgement.config.pad_multiple} (plan.pad_multiple) makes "
        f"{judgement.rounding_share:.1%} of all padded tokens; a smaller multiple wastes less"
    ]


def _named(index: int, bucket: BucketSummary) -> str:
    return f"bucket {index} ({bucket.low:,} to {bucket.high:,} tokens)"
