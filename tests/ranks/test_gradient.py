"""The gradient of a step is that of one process over the same samples (design.md 5.2, dflash.md 6.42)."""

import pytest
import torch

from dflash_lightning.plan.config import PlanConfig
from tests.ranks import jobs
from tests.runs import make_store_of

pytestmark = [pytest.mark.ranks, pytest.mark.slow]

ONE_ROW_BATCHES = PlanConfig(edges=(12, 24, 48), max_tokens=48, max_rows=1, oversize="truncate")
UNEQUAL = [(44, range(4, 44)), (60, range(50, 60)), (24, range(12, 24)), (12, range(9, 12))]
"""40, 0, 12 and 3 supervised tokens: of the second row truncation leaves the prompt, without an anchor."""


@pytest.fixture(scope="module")
def store(tmp_path_factory, toy_target):
    return str(make_store_of(tmp_path_factory.mktemp("unequal"), toy_target, UNEQUAL))


def one_step(world, accumulate, root, target, store, **options):
    """The same four samples in one optimizer step, whatever the world."""
    run = jobs.fit if world == 1 else options.pop("ranks").run
    job = {} if world == 1 else {"job": "tests.ranks.jobs:fit"}
    model = {"num_anchors": 40, **options.pop("module", {})}
    return run(
        **job,
        root=str(root),
        target=str(target),
        store=store,
        accumulate_grad_batches=accumulate,
        max_epochs=1,
        log_every_n_steps=1,
        module=model,
        data={"plan": ONE_ROW_BATCHES, "num_anchors": 40},
        **options,
    )


def assert_same_gradient(ours, theirs):
    assert ours.keys() == theirs.keys()
    difference = torch.cat([(ours[name] - theirs[name]).flatten() for name in ours])
    whole = torch.cat([value.flatten() for value in theirs.values()])
    assert difference.norm() <= 1e-6 * whole.norm()
    for name in ours:
        assert (ours[name] - theirs[name]).norm() <= 1e-5 * theirs[name].norm(), name


@pytest.mark.parametrize("clip", [None, 0.1])
@pytest.mark.parametrize("objective", ["CrossEntropy", "DPace", "Distillation"])
def test_two_by_two_equals_one_process(objective, clip, tmp_path, toy_target, store, two_ranks):
    from dflash_lightning.objective import kinds

    settings = {"module": {"objective": getattr(kinds, objective)()}, "gradient_clip_val": clip}
    alone = one_step(1, 4, tmp_path / "alone", toy_target, store, **settings)
    ours = one_step(2, 2, tmp_path / "two", toy_target, store, ranks=two_ranks, **settings)

    blocks_by_rank = [sum(len(ids) for batch in r["batches"] for ids in batch["anchors"]) for r in ours]
    assert len(ours[0]["batches"]) == len(ours[1]["batches"]) == 2
    assert max(blocks_by_rank) > 2 * min(blocks_by_rank)  # else equal means of unequal ranks would pass
    assert sorted(b["ids"] for r in ours for b in r["batches"]) == sorted(b["ids"] for b in alone["batches"])

    (reference,), (record,) = alone["gradients"], alone["steps"]
    for rank in ours:
        (gradient,), (step,) = rank["gradients"], rank["steps"]
        assert_same_gradient(gradient, reference)
        for name in ("norm", "clip_factor", "weight", "train/loss", "train/tau", "train/accuracy"):
            assert step[name] == pytest.approx(record[name], rel=1e-6), name
        assert (step["clip_factor"] < 1) == (clip is not None)
    for name, value in ours[0]["weights"].items():
        assert torch.equal(value, ours[1]["weights"][name]), name
    for name in ("train/loss", "train/tau", "train/grad_norm", "batch/avg_seq_len"):
        assert jobs.logged(ours[0]["rows"], name) == pytest.approx(jobs.logged(alone["rows"], name), rel=1e-6)


def test_ranks_that_see_nothing_to_learn_do_not_hang_and_do_not_step(tmp_path, toy_target, two_ranks):
    nothing = str(make_store_of(tmp_path / "store", toy_target, [UNEQUAL[1]] * 4))
    for rank in one_step(2, 2, tmp_path / "two", toy_target, nothing, ranks=two_ranks):
        (step,) = rank["steps"]
        assert step["skipped"]
        assert step["weight"] == 0
        assert step["optimizer_steps"] == []
        assert rank["skipped"] == {"total": 0, "in_a_row": 0}  # it is no fault: nothing was not finite
