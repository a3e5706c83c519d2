"""Everything that is shown of one plan, gathered once: the table, the JSON and the pictures read it.

in    Samples, PlanSettings
out   PlanFacts
law   a function of its arguments: it reads no clock and no device
"""

from dataclasses import dataclass, field, replace

import numpy as np

from dflash_lightning.plan import rng
from dflash_lightning.plan.epoch import Plan, plan_epoch
from dflash_lightning.plan.judge.judgement import Judgement, judge
from dflash_lightning.plan.judge.mix import MixFacts, judge_mix
from dflash_lightning.plan.judge.warnings import plan_warnings
from dflash_lightning.plan.order import Shuffle
from dflash_lightning.plan.packing import BucketPacking
from dflash_lightning.plan.samples import Samples
from dflash_lightning.plan.summary import PlanSummary, summarize
from dflash_lightning.plan.windows import lost_to_tail, require_ranks_fit
from dflash_lightning.plan_view.geometry import Geometry
from dflash_lightning.plan_view.resources import Memory, estimate_memory
from dflash_lightning.plan_view.run_length import LearningRates, RunLength, learning_rates, run_length
from dflash_lightning.plan_view.settings import PlanSettings


@dataclass(frozen=True, kw_only=True)
class PlanFacts:
    """One epoch's plan, judged, with what it means for the run."""

    settings: PlanSettings = field(repr=False)
    plan: Plan
    judgement: Judgement
    shuffled: MixFacts
    """The same batches in a random order: what an order has to beat."""
    run: RunLength
    rates: LearningRates | None
    """None without a schedule (no YAML)."""
    memory: Memory | str | None
    """None where no target is known; a sentence where its config cannot be read."""
    without_static_shapes: PlanSummary | None
    """The same settings with static_shapes off; None where they are off already."""
    lost_to_tail: int
    """Samples that this epoch does not train on, for tail = drop."""
    warnings: tuple[str, ...]

    @property
    def mixes_buckets(self) -> bool:
        """A batch holds rows of several buckets, and counts as of its longest row's."""
        return not isinstance(self.settings.plan.packing, BucketPacking)


def gather_facts(samples: Samples, settings: PlanSettings, geometry: Geometry | str | None) -> PlanFacts:
    """Plan one epoch and judge it.

    Raises: ValueError where no run can use such a plan, in the words that training would use.
    """
    require_ranks_fit(len(samples), settings.world)
    plan = make_plan(samples, settings)
    judgement = judge(plan, samples, settings.plan, world=settings.world, accumulate=settings.accumulate)
    run = run_length(judgement.steps_per_epoch, max_epochs=settings.max_epochs, max_steps=settings.max_steps)
    return PlanFacts(
        settings=settings,
        plan=plan,
        judgement=judgement,
        shuffled=shuffled_mix(plan, settings),
        run=run,
        rates=learning_rates(settings.rate, run.steps) if settings.rate and run.steps else None,
        memory=_memory(plan, samples, settings, geometry),
        without_static_shapes=_without_static_shapes(samples, settings),
        lost_to_tail=len(lost_to_tail(plan, 0, world=settings.world, tail=settings.plan.tail)),
        warnings=tuple(plan_warnings(judgement)),
    )


def make_plan(samples: Samples, settings: PlanSettings) -> Plan:
    """The epoch's plan, exactly as training makes it."""
    return plan_epoch(
        samples,
        settings.plan,
        num_anchors=settings.num_anchors,
        block_size=settings.block_size,
        seed=settings.seed,
        epoch=settings.epoch,
    )


def shuffled_mix(plan: Plan, settings: PlanSettings) -> MixFacts:
    """The windows of the plan's own batches, had they been shuffled."""
    counts = np.bincount(plan.bucket, minlength=len(plan.edges)).tolist()
    labels = Shuffle().labels(counts, key=rng.key(settings.seed, settings.epoch, "order"))
    return judge_mix(labels, len(plan.edges), settings.window_batches)


def _memory(
    plan: Plan, samples: Samples, settings: PlanSettings, geometry: Geometry | str | None
) -> Memory | str | None:
    if settings.model is None or not isinstance(geometry, Geometry):
        return geometry if isinstance(geometry, str) else None
    return estimate_memory(plan, samples, geometry, settings.model, window_batches=settings.window_batches)


def _without_static_shapes(samples: Samples, settings: PlanSettings) -> PlanSummary | None:
    if not settings.plan.static_shapes:
        return None
    dynamic = replace(settings, plan=replace(settings.plan, static_shapes=False))
    return summarize(make_plan(samples, dynamic), samples)
