"""The count of prefixes gives the streak of the tree that decoding would have built, on every case."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dflash_lightning.decoding.tree import build_tree
from dflash_lightning.objective import streaks, tree_acceptance
from dflash_lightning.objective.marginals import FLOOR, Marginals, best_of, on_grid
from dflash_lightning.objective.tree_acceptance import tree_streaks

BUDGETS = [1, 2, 3, 5, 8, 13, 40]


def walked(best, labels, supervised, budget):
    """Build the tree of one anchor, then follow the real tokens down."""
    ids = best.token_ids.tolist()
    children = build_tree(best.log_probs.tolist(), ids, budget).children()
    node = streak = 0
    for slot, (label, counts) in enumerate(zip(labels.tolist(), supervised.tolist(), strict=True)):
        step = (node, label if counts else ids[slot][0])
        if step not in children:
            break
        node, streak = children[step], streak + counts
    return streak


def by_trees(best, labels, supervised, budgets):
    return [
        [walked(Marginals(*(part[row] for part in best)), labels[row], supervised[row], m) for m in budgets]
        for row in range(len(labels))
    ]


SCORES = {
    "no ties": lambda shape, generator: (2 * torch.randn(shape, generator=generator)).log_softmax(-1),
    "ties within slots and between paths": lambda shape, generator: (
        -torch.randint(0, 4, shape, generator=generator).double() / 4
    ),
    "steep, with ties": lambda shape, generator: (
        -2.0 * torch.randint(1, 4, shape, generator=generator).double()
    ),
    "tokens that cost nothing, tokens that are impossible": lambda shape, generator: torch.tensor(
        [0.0, -1.0, -torch.inf]
    )[torch.randint(0, 3, shape, generator=generator)],
}


@pytest.mark.parametrize("kind", SCORES)
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**9), depth=st.integers(1, 5), vocab=st.integers(1, 9))
def test_streaks_are_those_of_walking_the_tree(kind, seed, depth, vocab):
    """4 kinds x 60 draws x 5 anchors x 7 budgets: 8,400 trees."""
    generator = torch.Generator().manual_seed(seed)
    scores = on_grid(SCORES[kind]((5, depth, vocab), generator))
    best = Marginals(*scores.sort(dim=-1, descending=True, stable=True))
    labels = torch.randint(0, vocab, (5, depth), generator=generator)
    easy = torch.rand(5, depth, generator=generator) < 0.6
    labels = torch.where(easy, best.token_ids[..., 0], labels)
    supervised = torch.rand(5, depth, generator=generator) < 0.8
    got = tree_streaks(best, labels, supervised, budgets=BUDGETS)
    assert got.tolist() == by_trees(best, labels, supervised, BUDGETS)


def drafted(anchors, *, k, seed=0, vocab=300, depth=7):
    """A drafter that is right about itself: the real tokens are drawn from its own distributions."""
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(anchors, depth, vocab, generator=generator)
    flat = logits.softmax(-1).flatten(0, 1)
    labels = torch.multinomial(flat, 1, generator=generator).view(anchors, depth)
    return best_of(logits, k=k), labels, torch.ones(anchors, depth, dtype=torch.bool), logits


def test_streaks_of_a_large_vocabulary_and_large_budgets():
    best, labels, supervised, _ = drafted(60, k=64)
    got = tree_streaks(best, labels, supervised, budgets=[16, 64])
    assert got.tolist() == by_trees(best, labels, supervised, [16, 64])
    assert len(set(got.flatten().tolist())) > 4  # the drafter above is neither hopeless nor perfect


def test_a_smaller_budget_among_larger_ones_changes_nothing():
    best, labels, supervised, _ = drafted(200, k=64, seed=1)
    several = tree_streaks(best, labels, supervised, budgets=[64, 3, 16])
    alone = [tree_streaks(best, labels, supervised, budgets=[m])[:, 0] for m in (64, 3, 16)]
    assert torch.equal(several, torch.stack(alone, dim=1))


def test_chunks_of_anchors_change_nothing(monkeypatch):
    best, labels, supervised, _ = drafted(50, k=16, seed=2)
    whole = tree_streaks(best, labels, supervised, budgets=[4, 16])
    monkeypatch.setattr(tree_acceptance, "PREFIXES_AT_ONCE", 16 * 7)
    assert torch.equal(tree_streaks(best, labels, supervised, budgets=[4, 16]), whole)


def test_the_budget_never_hurts_and_a_large_one_beats_the_chain():
    best, labels, supervised, logits = drafted(400, k=256, seed=3)
    got = tree_streaks(best, labels, supervised, budgets=[1, 7, 64, 256]).double().mean(0)
    chain = float(streaks(logits.argmax(-1) == labels, supervised).double().mean())
    assert (got[1:] >= got[:-1]).all()
    assert got[0] <= chain < got[2] < got[3]


def test_the_real_text_of_the_worked_example():
    """Oracle 6.34: nodes in order are 0; 00; 1; 01; 10; 11."""
    odds = torch.tensor([[0.6, 0.3, 0.1], [0.55, 0.35, 0.1]]).log()
    labels = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1], [2, 0]])
    best = Marginals(*(part.expand(5, 2, 3).contiguous() for part in best_of(odds, k=3)))
    got = tree_streaks(best, labels, torch.ones(5, 2, dtype=torch.bool), budgets=range(1, 8))
    assert got.tolist() == [
        [1, 2, 2, 2, 2, 2, 2],
        [1, 1, 1, 2, 2, 2, 2],
        [0, 0, 1, 1, 2, 2, 2],
        [0, 0, 1, 1, 1, 2, 2],
        [0, 0, 0, 0, 0, 0, 1],
    ]


def test_slots_without_supervision_break_nothing_and_count_for_nothing():
    best = best_of(torch.tensor([[[5.0, 0.0], [5.0, 0.0], [5.0, 0.0]]]).repeat(2, 1, 1), k=2)
    supervised = torch.tensor([[True, False, True], [True, True, False]])
    labels = torch.tensor([[0, -100, 0], [0, 0, -100]])
    assert tree_streaks(best, labels, supervised, budgets=[3])[:, 0].tolist() == [2, 2]


def test_a_batch_without_anchors_has_no_streaks():
    best = Marginals(torch.zeros(0, 3, 4, dtype=torch.float64), torch.zeros(0, 3, 4, dtype=torch.long))
    nothing = torch.zeros(0, 3, dtype=torch.long)
    assert tree_streaks(best, nothing, nothing.bool(), budgets=[2, 4]).shape == (0, 2)


@pytest.mark.parametrize("budgets", [[], [4, 0], [-1]])
def test_budgets_without_nodes_are_refused(budgets):
    best, labels, supervised, _ = drafted(2, k=4)
    with pytest.raises(ValueError, match=r"a budget counts the nodes of a tree and is at least 1, got \["):
        tree_streaks(best, labels, supervised, budgets=budgets)


def test_impossible_tokens_have_a_floor():
    assert best_of(torch.tensor([[0.0, -torch.inf]]), k=2).log_probs.tolist() == [[0.0, FLOOR]]
