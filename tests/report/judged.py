"""Verdicts of synthetic runs, over many seeds."""

from dflash_lightning.report.verdict import judge_run

SEEDS = range(20)
STEPS = 400


def kinds(run):
    return tuple(verdict.kind for verdict in judge_run(run))


def verdicts(make):
    """Verdicts of the runs of all seeds."""
    return [judge_run(make(seed)) for seed in SEEDS]


def of_kind(found, kind):
    (verdict,) = [verdict for verdict in found if verdict.kind == kind]
    return verdict
