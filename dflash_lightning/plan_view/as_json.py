"""The facts for programs: one flat dictionary of numbers, strings and lists.

in    PlanFacts
out   plain values that json.dumps takes; shares are 0 to 1, memory is bytes
"""

from dataclasses import asdict
from typing import Any

from dflash_lightning.plan.judge.judgement import Judgement
from dflash_lightning.plan.judge.runs import RUN_BINS
from dflash_lightning.plan.summary import BucketSummary
from dflash_lightning.plan_view.facts import PlanFacts


def as_values(facts: PlanFacts) -> dict[str, Any]:
    """Everything but `seconds`, which the command adds."""
    judgement, settings = facts.judgement, facts.settings
    return {
        **_plan_values(facts),
        "world_size": settings.world,
        "accumulate": settings.accumulate,
        "seed": settings.seed,
        "epoch": settings.epoch,
        "steps_per_epoch": judgement.steps_per_epoch,
        "steps": facts.run.steps,
        "steps_exact": facts.run.exact,
        "learning_rate": None if facts.rates is None else asdict(facts.rates),
        **_order_values(judgement),
        "window_tv_mean_shuffled": facts.shuffled.tv_mean,
        "window_tv_max_shuffled": facts.shuffled.tv_max,
        **_balance_values(judgement),
        **_memory_values(facts),
        "static_shapes": _static_values(facts),
        "buckets": [bucket_values(bucket) for bucket in judgement.summary.buckets],
        "notes": list(settings.notes),
        "warnings": list(facts.warnings),
    }


def _plan_values(facts: PlanFacts) -> dict[str, Any]:
    summary = facts.judgement.summary
    return {
        "digest": summary.digest,
        "samples": summary.samples,
        "dropped": summary.dropped,
        "truncated": summary.truncated,
        "lost_to_tail": facts.lost_to_tail,
        "mixes_buckets": facts.mixes_buckets,
        "tokens": summary.tokens,
        "padded_tokens": summary.padded_tokens,
        "padding_efficiency": summary.padding_efficiency,
        "batches": summary.batches,
        "over_budget": facts.judgement.over_budget,
        "max_batch_tokens": summary.max_batch_tokens,
        "max_batch_block_tokens": summary.max_batch_block_tokens,
    }


def _order_values(judgement: Judgement) -> dict[str, Any]:
    runs, mix = judgement.runs, judgement.mix
    return {
        "longest_run": runs.longest_run,
        "final_run": runs.final_run,
        "final_bucket": runs.final_bucket,
        "equal_neighbours": runs.equal_neighbours,
        "forced_neighbours": runs.forced_neighbours,
        "alternating_share": runs.alternating_share,
        "largest_bucket": runs.largest_bucket,
        "runs_of_largest": [
            {"low": low, "high": high, "batches": batches}
            for (low, high), batches in zip(RUN_BINS, runs.largest_in_runs, strict=True)
        ],
        "window_batches": judgement.window_batches,
        "window_tv_mean": mix.tv_mean,
        "window_tv_max": mix.tv_max,
        "window_tv_floor": mix.tv_floor,
        "single_bucket_windows": mix.single_bucket_share,
        "single_bucket_estimate": mix.single_bucket_estimate,
        "drift": mix.drift,
        "tenths": [list(tenth) for tenth in mix.tenths],
    }


def _balance_values(judgement: Judgement) -> dict[str, Any]:
    return {f"straggler_{name}": value for name, value in asdict(judgement.balance).items()}


def _memory_values(facts: PlanFacts) -> dict[str, Any]:
    unknown = facts.memory if isinstance(facts.memory, str) else None
    known = None if facts.memory is None or unknown else asdict(facts.memory)  # type: ignore[arg-type]
    return {"memory": known, "memory_unknown": unknown}


def _static_values(facts: PlanFacts) -> dict[str, Any] | None:
    """What static shapes cost: the same figures without them."""
    dynamic = facts.without_static_shapes
    if dynamic is None:
        return None
    return {
        "batches_without": dynamic.batches,
        "padding_efficiency_without": dynamic.padding_efficiency,
    }


def bucket_values(bucket: BucketSummary) -> dict[str, Any]:
    """One bucket; `rows` is the mean batch size. Both ratios are null in an empty bucket."""
    return {
        **asdict(bucket),
        "rows": bucket.samples / bucket.batches if bucket.batches else None,
        "padding_efficiency": bucket.tokens / bucket.padded_tokens if bucket.batches else None,
    }
