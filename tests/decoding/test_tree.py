"""Oracles 6.34 and 6.37: the tree is the set of the most probable prefixes, in order."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dflash_lightning.decoding.tree import DraftTree, build_tree, walk_tree
from dflash_lightning.objective.marginals import on_grid

SLOTS = [[0.6, 0.3, 0.1], [0.55, 0.35, 0.1]]
IDS = [[0, 1, 2], [0, 1, 2]]


def log_probs(slots):
    return on_grid(torch.tensor(slots, dtype=torch.float64).log()).tolist()


def example(budget):
    return build_tree(log_probs(SLOTS), IDS, budget)


def paths(tree):
    """Token path of every node."""
    found = [()]
    for token, parent in zip(tree.tokens, tree.parents, strict=True):
        found.append((*found[parent], token))
    return found[1:]


def best_prefixes(scores, budget):
    """Every prefix there is, by score and then by its ranks."""
    ranked = [
        (-sum(row[rank] for row, rank in zip(scores, ranks, strict=False)), ranks)
        for depth in range(1, len(scores) + 1)
        for ranks in itertools.product(*(range(len(row)) for row in scores[:depth]))
    ]
    return [(ranks, -negative) for negative, ranks in sorted(ranked)[: max(budget, 0)]]


def test_the_worked_example():
    tree = example(7)
    assert tree.tokens == (0, 0, 1, 1, 0, 1, 2)
    assert tree.depths == (1, 2, 1, 2, 2, 2, 1)
    assert tree.parents == (0, 1, 0, 1, 3, 3, 0)
    odds = torch.tensor(tree.scores).exp()
    torch.testing.assert_close(odds, torch.tensor([0.6, 0.33, 0.3, 0.21, 0.165, 0.105, 0.1]))
    assert tree.children() == {(0, 0): 1, (0, 1): 3, (1, 0): 2, (1, 1): 4, (3, 0): 5, (3, 1): 6, (0, 2): 7}


@pytest.mark.parametrize("budget", range(8))
def test_a_smaller_budget_gives_the_beginning_of_the_tree(budget):
    small, large = example(budget), example(7)
    assert len(small) == budget
    assert small == DraftTree(
        large.tokens[:budget], large.parents[:budget], large.depths[:budget], large.scores[:budget]
    )


@pytest.mark.parametrize(("slots", "budget"), [([], 5), (SLOTS, 0), (SLOTS, -1)])
def test_without_depth_or_budget_there_is_the_root_alone(slots, budget):
    tree = build_tree(log_probs(slots), IDS, budget)
    assert len(tree) == 0
    assert tree.visible(past=3).tolist() == [[True] * 4]


def test_what_verification_needs_of_the_worked_example():
    tree = example(6)
    rows = ["1000000", "1100000", "1110000", "1001000", "1100100", "1001010", "1001001"]
    seen = tree.visible(past=10)
    assert seen.shape == (7, 17)
    assert seen[:, :10].all()
    assert ["".join(map(str, row)) for row in seen[:, 10:].int().tolist()] == rows
    assert seen.sum(1).tolist() == [11, 12, 13, 12, 13, 13, 13]
    assert tree.positions(10).tolist() == [10, 11, 12, 11, 12, 12, 12]


@pytest.mark.parametrize(
    ("verified", "passed", "following"),
    [
        ([0, 0, 2, 9, 9, 9, 9], [0, 1, 2], 2),
        ([1, 9, 9, 1, 9, 9, 5], [0, 3, 6], 5),
        ([2, 9, 9, 9, 9, 9, 9], [0], 2),
        ([0, 1, 9, 9, 8, 9, 9], [0, 1, 4], 8),
    ],
)
def test_walks_of_the_worked_example(verified, passed, following):
    assert walk_tree(example(6), verified) == (passed, following)


# Few distinct values, so that whole paths tie again and again.
marginal = st.lists(st.sampled_from([-0.25, -0.5, -0.75, -1.0, -2.5]), min_size=1, max_size=4).map(
    lambda values: sorted(values, reverse=True)
)


@given(scores=st.lists(marginal, max_size=4), budget=st.integers(-1, 14))
def test_nodes_are_the_best_prefixes_in_order_ties_by_the_smaller_path_of_ranks(scores, budget):
    ranks = [list(range(len(row))) for row in scores]
    tree = build_tree(scores, ranks, budget)
    assert list(zip(paths(tree), tree.scores, strict=True)) == best_prefixes(scores, budget)


@given(
    seed=st.integers(0, 10**6), depth=st.integers(1, 3), vocab=st.integers(1, 4), budget=st.integers(0, 14)
)
def test_nodes_are_the_best_prefixes_of_random_distributions(seed, depth, vocab, budget):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(depth, vocab, generator=generator, dtype=torch.float64)
    scores = on_grid(logits.log_softmax(-1).sort(descending=True).values).tolist()
    tree = build_tree(scores, [list(range(vocab))] * depth, budget)
    assert list(zip(paths(tree), tree.scores, strict=True)) == best_prefixes(scores, budget)


@given(scores=st.lists(marginal, min_size=1, max_size=6), budget=st.integers(1, 40))
def test_parents_come_first_and_scores_never_rise(scores, budget):
    tree = build_tree(scores, [list(range(len(row))) for row in scores], budget)
    assert all(parent < node for node, parent in enumerate(tree.parents, start=1))
    assert all(later <= earlier for earlier, later in itertools.pairwise(tree.scores))
    depth_of = (0, *tree.depths)
    assert all(depth == depth_of[parent] + 1 for depth, parent in zip(tree.depths, tree.parents, strict=True))
    assert len(set(paths(tree))) == len(tree)


@given(seed=st.integers(0, 10**6), budget=st.integers(1, 12))
def test_ranks_beyond_the_budget_lose_nothing(seed, budget):
    logits = torch.randn(3, 30, generator=torch.Generator().manual_seed(seed))
    scores = on_grid(logits.log_softmax(-1).sort(descending=True).values)
    ids = [list(range(30))] * 3
    assert build_tree(scores.tolist(), ids, budget) == build_tree(scores[:, :budget].tolist(), ids, budget)
