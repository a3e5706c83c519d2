"""Trees in training: counted at the steps that are due, logged with the next log, equal on 1 and 2 ranks."""

import math

import pytest
import torch
from lightning import Callback

from dflash_lightning.training.forward import BlockOutcome
from dflash_lightning.training.tree_watch import TreeWatch, tree_sums
from tests.runs import make_store, toy_data, toy_module, toy_trainer


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


class Seen(Callback):
    def __init__(self):
        self.values = []

    def on_train_batch_end(self, trainer, pl_module, *_):
        self.values.append({k: float(v) for k, v in trainer.callback_metrics.items() if "tree" in k})


def test_a_run_logs_trees_at_its_interval_and_trains_as_without(tmp_path, toy_target):
    store = make_store(tmp_path / "store", toy_target, [30, 30])
    weights = []
    for every in (2, 0):
        seen, module = Seen(), toy_module(toy_target, lr=1e-2, tree_budgets=(3, 20), tree_every_n_steps=every)
        trainer = toy_trainer(
            tmp_path / str(every), max_steps=4, max_epochs=-1, callbacks=[seen], limit_val_batches=0
        )
        trainer.fit(module, toy_data(store))
        weights.append(module.drafter.fc.weight.detach().clone())
        names = set(seen.values[-1])
        assert names == (
            {f"train/{name}_{m}" for name in ("tree_streak", "tree_over_streak") for m in (3, 20)}
            if every
            else set()
        )
        if every:
            assert seen.values[0] == {}
            assert 0 <= seen.values[-1]["train/tree_streak_3"] <= seen.values[-1]["train/tree_streak_20"] < 4
    assert torch.equal(*weights)
