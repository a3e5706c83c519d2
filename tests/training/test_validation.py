"""Validation: every anchor of every held-out sample, in bounded memory. On two ranks: tests/ranks."""

from dataclasses import replace

import pytest
import torch

from dflash_lightning.data.batch import TokenBatch
from dflash_lightning.objective.kinds import CrossEntropy, DPace
from dflash_lightning.training.forward import BlockOutcome
from dflash_lightning.training.validation import ValidationSums, anchor_groups
from tests.runs import PLAN, make_store, toy_data, toy_module, toy_trainer
from tests.training.reference import validate_slowly

HELD_OUT = [10, 30, 20, 15, 9, 40]
"""One is longer than every training sample."""


@pytest.fixture(scope="module")
def store(tmp_path_factory, toy_target):
    return make_store(tmp_path_factory.mktemp("store"), toy_target, [30, 30], held_out=HELD_OUT)


@pytest.fixture(scope="module")
def trained(tmp_path_factory, toy_target, store):
    """A checkpoint that guesses some tokens right, else tau would be 1 whatever one computes."""
    root = tmp_path_factory.mktemp("trained")
    module = toy_module(toy_target, lr=1e-2)
    trainer = toy_trainer(root, max_steps=25, max_epochs=-1, logger=False, limit_val_batches=0)
    trainer.fit(module, toy_data(store))
    trainer.save_checkpoint(root / "trained.ckpt")
    return root / "trained.ckpt"


def validated(tmp_path, target, store, checkpoint, *, objective=None, **plan):
    module, data = (
        toy_module(target, objective=objective or CrossEntropy()),
        toy_data(store, plan=replace(PLAN, **plan)),
    )
    (values,) = toy_trainer(tmp_path).validate(module, data, ckpt_path=checkpoint, verbose=False)
    return values, module, data


@pytest.mark.parametrize("limit", [20, 44, 0])
def test_validation_is_the_loop_over_samples_and_anchors(limit, tmp_path, toy_target, store, trained):
    values, module, data = validated(tmp_path, toy_target, store, trained, max_block_tokens=limit)
    slowly = validate_slowly(module, data.store)
    assert slowly["val/tau"] > 1.02
    assert values["val/tau"] == pytest.approx(slowly["val/tau"], rel=1e-6)  # Lightning hands out fp32
    for name, value in slowly.items():
        assert values[name] == pytest.approx(value, rel=1e-5), name


def test_weights_that_depend_on_the_block_survive_the_grouping(tmp_path, toy_target, store, trained):
    results = [
        validated(tmp_path, toy_target, store, trained, objective=DPace(), max_block_tokens=limit)[0]
        for limit in (20, 0)
    ]
    assert results[0]["val/loss"] == pytest.approx(results[1]["val/loss"], rel=1e-6)


def batch_of(rows: int, slots: int) -> TokenBatch:
    anchors = torch.arange(rows * slots).view(rows, slots)
    return TokenBatch(
        input_ids=torch.zeros(rows, 8, dtype=torch.long),
        loss_mask=torch.ones(rows, 8, dtype=torch.bool),
        lengths=torch.full((rows,), 8),
        anchors=anchors,
        keep=anchors % 3 > 0,
        sample_ids=torch.arange(rows),
        bucket=0,
    )


@pytest.mark.parametrize(
    ("rows", "slots", "limit", "widths"),
    [
        (2, 5, 16, [2, 2, 1]),  # 2 rows x 2 anchors x 4 slots = 16
        (2, 5, 0, [5]),  # no limit
        (2, 5, 1000, [5]),
        (4, 3, 10, [1, 1, 1]),  # one anchor of each row at least, else nothing would run
        (1, 1, 4, [1]),
    ],
)
def test_groups_hold_every_anchor_once_within_the_limit(rows, slots, limit, widths):
    batch = batch_of(rows, slots)
    groups = list(anchor_groups(batch, block_size=4, max_block_tokens=limit))
    assert [group.anchors.shape[1] for group in groups] == widths
    assert torch.equal(torch.cat([group.anchors for group in groups], 1), batch.anchors)
    assert torch.equal(torch.cat([group.keep for group in groups], 1), batch.keep)


def outcome(blocks: int, seed: int) -> BlockOutcome:
    generator = torch.Generator().manual_seed(seed)
    supervised = torch.rand(1, blocks, 3, generator=generator) < 0.8
    correct = (torch.rand(1, blocks, 3, generator=generator) < 0.5) & supervised
    return BlockOutcome(
        torch.rand(1, blocks, 3, generator=generator), supervised.float(), supervised, correct
    )


def test_sums_do_not_depend_on_how_outcomes_are_cut():
    parts = [outcome(blocks, seed) for seed, blocks in enumerate((1, 7, 3))]
    whole = BlockOutcome(
        *(torch.cat([getattr(p, n) for p in parts], 1) for n in ("loss", "weight", "supervised", "correct"))
    )
    cut, at_once = ValidationSums(4), ValidationSums(4)
    for part in parts:
        cut.update(part)
    at_once.update(whole)
    ours, theirs = cut.ratios("val"), at_once.ratios("val")
    for name, value in theirs.items():
        assert float(ours[name]) == pytest.approx(float(value), rel=1e-6), name
    assert ours["val/tau"] == theirs["val/tau"]  # integer sums


def test_a_validation_starts_from_nothing():
    sums = ValidationSums(4)
    sums.update(outcome(5, seed=1))
    sums.reset()
    sums.update(outcome(2, seed=2))
    again = ValidationSums(4)
    again.update(outcome(2, seed=2))
    assert sums.ratios("val") == again.ratios("val")
