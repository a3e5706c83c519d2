import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dflash_lightning.target.stored.layout import cut_batches, plan_layout

LENGTHS = st.lists(st.integers(1, 40), min_size=1, max_size=60)


def test_longest_first_and_a_shard_ends_where_the_next_sample_is_too_much():
    layout = plan_layout(np.array([5, 2, 9, 4, 2]), token_bytes=10, shard_bytes=110)
    assert [layout.samples(i).tolist() for i in range(layout.num_shards)] == [[2], [0, 3, 1], [4]]
    assert [layout.tokens(i) for i in range(layout.num_shards)] == [9, 11, 2]
    shard, offset = layout.places()
    assert shard.tolist() == [1, 1, 0, 1, 2]
    assert offset.tolist() == [0, 9, 0, 5, 0]


@given(LENGTHS, st.integers(1, 100))
def test_every_sample_lies_once_and_no_two_overlap(lengths, limit):
    layout = plan_layout(np.array(lengths), token_bytes=1, shard_bytes=limit)
    shard, offset = layout.places()
    tokens = [set() for _ in range(layout.num_shards)]
    for number, length in enumerate(lengths):
        mine = set(range(offset[number], offset[number] + length))
        assert not mine & tokens[shard[number]]
        tokens[shard[number]] |= mine
    assert [len(used) for used in tokens] == [layout.tokens(i) for i in range(layout.num_shards)]
    assert all(used == set(range(len(used))) for used in tokens)  # no gap either
    everyone = np.concatenate([layout.samples(i) for i in range(layout.num_shards)])
    assert sorted(everyone.tolist()) == list(range(len(lengths)))


@given(LENGTHS, st.integers(1, 100))
def test_a_shard_exceeds_its_limit_only_for_one_sample_and_could_hold_no_more(lengths, limit):
    layout = plan_layout(np.array(lengths), token_bytes=1, shard_bytes=limit)
    for shard in range(layout.num_shards):
        assert layout.tokens(shard) <= limit or len(layout.samples(shard)) == 1
        if shard + 1 < layout.num_shards:
            following = lengths[layout.samples(shard + 1)[0]]
            assert layout.tokens(shard) + following > limit


@given(LENGTHS, st.integers(1, 100))
def test_batches_are_all_samples_in_order_within_the_budget(lengths, budget):
    falling = np.sort(np.array(lengths))[::-1]
    batches = [falling[part] for part in cut_batches(falling, max_tokens=budget)]
    assert np.concatenate(batches).tolist() == falling.tolist()
    assert all(len(batch) == 1 or len(batch) * batch[0] <= budget for batch in batches)
