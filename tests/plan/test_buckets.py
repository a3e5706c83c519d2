from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dflash_lightning.plan.buckets import (
    assign_buckets,
    given_edges,
    optimal_edges,
    padded_lengths,
    quantile_edges,
)


@pytest.mark.parametrize(
    ("lengths", "limit", "multiple", "padded"),
    [
        ([1, 7, 8, 9], 64, 1, [1, 7, 8, 9]),
        ([1, 7, 8, 9], 64, 8, [8, 8, 8, 16]),
        ([63, 64, 65, 900], 64, 8, [64, 64, 64, 64]),  # longer ones count as cut
    ],
)
def test_lengths_round_up(lengths, limit, multiple, padded):
    assert padded_lengths(np.array(lengths), limit=limit, pad_multiple=multiple).tolist() == padded


def test_an_edge_belongs_to_the_bucket_it_closes():
    assert assign_buckets(np.array([1, 8, 9, 16]), (8, 16)).tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("edges", "multiple", "rounded"),
    [((8, 20), 1, (8, 20)), ((8, 20), 16, (16, 32)), ((3, 8, 20), 16, (16, 32))],  # 3 and 8 fall together
)
def test_edges_round_up_as_lengths_do(edges, multiple, rounded):
    assert given_edges(edges, multiple) == rounded


@pytest.mark.parametrize(
    ("lengths", "num_buckets", "edges"),
    [
        ([1, 2, 3, 4, 5, 6], 3, (2, 4, 6)),
        ([1, 2, 3, 4, 5], 2, (3, 5)),
        ([7, 7, 7, 9], 4, (7, 9)),  # equal lengths share a bucket, so fewer buckets are left
        ([5], 6, (5,)),
    ],
)
def test_quantile_edges(lengths, num_buckets, edges):
    assert quantile_edges(np.array(lengths), num_buckets) == edges


def cost(lengths, edges):
    """Tokens when every sample is padded to the edge of its bucket."""
    return sum(min(edge for edge in edges if edge >= length) for length in lengths)


@settings(deadline=None)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=25), st.integers(1, 5))
def test_optimal_edges_are_those_a_search_of_all_finds(lengths, num_buckets):
    edges = optimal_edges(np.array(lengths), num_buckets, limit=30, pad_multiple=1)
    inner = sorted(set(lengths) - {max(lengths)})
    every = (
        (*some, max(lengths))
        for size in range(min(num_buckets, len(inner) + 1))
        for some in combinations(inner, size)
    )
    assert len(edges) <= num_buckets
    assert cost(lengths, edges) == min(cost(lengths, candidate) for candidate in every)


@given(
    st.lists(st.integers(1, 5000), min_size=1, max_size=40), st.integers(1, 6), st.sampled_from([1, 16, 100])
)
def test_edges_of_every_rule_rise_fit_the_limit_and_cover_every_sample(lengths, num_buckets, multiple):
    limit = -(-max(lengths) // multiple) * multiple
    padded = padded_lengths(np.array(lengths), limit=limit, pad_multiple=multiple)
    for edges in (
        quantile_edges(padded, num_buckets),
        optimal_edges(padded, num_buckets, limit=limit, pad_multiple=multiple),
    ):
        assert list(edges) == sorted(set(edges))
        assert 1 <= len(edges) <= num_buckets
        assert padded.max() <= edges[-1] <= limit
        assert all(edge % multiple == 0 for edge in edges)
