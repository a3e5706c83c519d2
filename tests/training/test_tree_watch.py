"""Trees in training: counted at the steps that are due, logged with the next log, equal on 1 and 2 ranks."""

import math
from collections import defaultdict

import pytest
import torch
from lightning import Callback

from dflash_lightning.training.forward import BlockOutcome
from dflash_lightning.training.tree_watch import TreeWatch, tree_sums
from tests.runs import make_store, toy_data, toy_module, toy_trainer
from tests.slow import slow
from tests.training.reference import tree_sums_slowly


def outcome(blocks, seed):
    generator = torch.Generator().manual_seed(seed)
    supervised = torch.rand(1, blocks, 3, generator=generator) < 0.7
    correct = (torch.rand(1, blocks, 3, generator=generator) < 0.6) & supervised
    trees = torch.randint(0, 4, (1, blocks, 2), generator=generator) * supervised.any(-1)[..., None]
    return BlockOutcome(supervised.float(), supervised.float(), supervised, correct, trees)


def alone(sums):
    return sums


def test_values_of_a_worked_example():
    every = torch.ones(1, 2, 2, dtype=torch.bool)
    right = torch.tensor([[[True, True], [False, True]]])
    watch = TreeWatch((4, 9), 1)
    watch.add(BlockOutcome(every.float(), every.float(), every, right, torch.tensor([[[2, 2], [0, 1]]])))
    watch.finish(alone, skipped=False)
    assert watch.take() == {
        "train/streak": 1.0,
        "train/tree_streak_4": 1.0,
        "train/tree_over_streak_4": 1.0,
        "train/tree_streak_9": 1.5,
        "train/tree_over_streak_9": 1.5,
    }
    assert watch.take() == {}  # the next stretch starts from nothing


def test_two_ranks_with_two_micro_batches_each_are_one_process_with_four():
    parts = [outcome(blocks, seed) for seed, blocks in enumerate((3, 5, 1, 8))]
    whole, half = TreeWatch((4, 9), 1), TreeWatch((4, 9), 1)
    for part in parts:
        whole.add(part)
    for part in parts[:2]:
        half.add(part)
    other = torch.stack([tree_sums(part) for part in parts[2:]]).sum(0)
    whole.finish(alone, skipped=False)
    half.finish(lambda sums: sums + other, skipped=False)
    assert half.take() == whole.take()


@pytest.mark.parametrize(("every", "due"), [(0, []), (1, [1, 2, 3, 4, 5, 6]), (3, [3, 6])])
def test_steps_that_are_due(every, due):
    watch = TreeWatch((4,), every)
    assert [step for step in range(1, 7) if watch.due(step)] == due


def test_a_skipped_step_counts_for_nothing():
    watch = TreeWatch((4, 9), 1)
    watch.add(outcome(4, seed=1))
    watch.finish(alone, skipped=True)
    assert watch.take() == {}


def test_sums_of_other_trees_are_not_taken_over():
    watch, same, other = TreeWatch((4, 9), 1), TreeWatch((4, 9), 7), TreeWatch((4, 8), 1)
    watch.add(outcome(4, seed=1))
    watch.finish(alone, skipped=False)
    for resumed in (same, other):
        resumed.load_state_dict(watch.state_dict())
    assert same.take() == watch.take() != {}
    assert other.take() == {}


def test_a_drafter_that_is_never_right_has_no_ratio():
    every = torch.ones(1, 1, 2, dtype=torch.bool)
    watch = TreeWatch((4,), 1)
    watch.add(BlockOutcome(every.float(), every.float(), every, ~every, torch.tensor([[[1]]])))
    watch.finish(alone, skipped=False)
    assert math.isnan(watch.take()["train/tree_over_streak_4"])


@pytest.mark.parametrize(
    ("budgets", "every", "message"),
    [
        ((16, 0), 1, r"tree_budgets counts the nodes of trees, each at least 1 and once, got \[16, 0\]"),
        ((8, 8), 1, "each at least 1 and once"),
        ((8,), -1, "tree_every_n_steps counts optimizer steps, 0 for never, got -1"),
    ],
)
def test_nonsense_is_refused(budgets, every, message):
    with pytest.raises(ValueError, match=message):
        TreeWatch(budgets, every)


class Recount(Callback):
    """The sums of each optimizer step by the loop of reference.py, and what the run logged after it."""

    def __init__(self):
        self.sums, self.logged = defaultdict(list), {}

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        self.on_train_end(trainer, pl_module)
        step = pl_module.data.position.steps + 1  # the weights are still those that this step began with
        self.sums[step].append(tree_sums_slowly(pl_module, batch[0]))

    def on_train_end(self, trainer, pl_module):
        """The module logs after the callbacks' own end of a batch."""
        values = {k: float(v) for k, v in trainer.callback_metrics.items() if "tree" in k or "streak" in k}
        self.logged[pl_module.data.position.steps] = values


def trained(tmp_path, target, store, every, *, steps):
    seen, module = Recount(), toy_module(target, lr=1e-2, tree_budgets=(3, 20), tree_every_n_steps=every)
    trainer = toy_trainer(tmp_path, max_steps=steps, max_epochs=-1, callbacks=[seen], limit_val_batches=0)
    trainer.fit(module, toy_data(store))
    return seen, module.drafter.fc.weight.detach().clone()


@pytest.mark.parametrize("every", [3, *slow(1, 2)])
def test_a_run_logs_what_the_loop_over_its_anchors_finds(tmp_path, toy_target, every):
    """Logged every 2 steps: of all steps since the last log that were due."""
    seen, _ = trained(tmp_path, toy_target, make_store(tmp_path, toy_target, [30, 30, 18]), every, steps=24)
    assert max(map(len, seen.sums.values())) == 2  # micro-batches of a step
    last, grown = {}, 0
    for step in range(2, 25, 2):
        due = [sums for one in (step - 1, step) if one % every == 0 for sums in seen.sums[one]]
        if due:
            blocks, streak, small, large = map(sum, zip(*due, strict=True))
            last = {
                "train/streak": streak / blocks,
                "train/tree_streak_3": small / blocks,
                "train/tree_streak_20": large / blocks,
                "train/tree_over_streak_3": small / streak if streak else math.nan,
                "train/tree_over_streak_20": large / streak if streak else math.nan,
            }
            grown += 0 < streak < large
        assert seen.logged[step] == pytest.approx(last, rel=1e-6, nan_ok=True)  # Lightning hands out fp32
    assert grown > 2  # else chain and trees were never right, and the comparison says nothing


def test_trees_cost_a_run_nothing_but_time(tmp_path, toy_target):
    store = make_store(tmp_path / "store", toy_target, [30, 30])
    with_trees, without = (trained(tmp_path / str(n), toy_target, store, n, steps=4) for n in (2, 0))
    assert all(values == {} for values in without[0].logged.values())
    assert (with_trees[0].logged[1], set(with_trees[0].logged[2])) == (
        {},
        {"train/streak"}
        | {f"train/{name}_{m}" for name in ("tree_streak", "tree_over_streak") for m in (3, 20)},
    )
    assert torch.equal(with_trees[1], without[1])
