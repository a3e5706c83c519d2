"""Parts of a state are rows of its tensors: together they are the state, for any number of ranks."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dflash_lightning.checkpoint.shards import ENTRY, load_shards, merge_shards, reshard, share

worlds = st.integers(1, 7)


def whole(rows):
    """A state of tensors with so many rows each, among things that are not split."""
    tensors = {f"w{i}": torch.arange(n * 3.0).reshape(n, 3) + 100 * i for i, n in enumerate(rows)}
    moments = {
        i: {"exp_avg": tensor * 2, "step": torch.tensor(4.0)} for i, tensor in enumerate(tensors.values())
    }
    return {"state_dict": tensors, "optimizer_states": [{"state": moments}], "epoch": 1, "betas": (0.9, 0.95)}


def parts_of(state, world):
    """What ranks save, the slow and obvious way."""
    rows = {f"state_dict/{name}": len(tensor) for name, tensor in state["state_dict"].items()}
    moments = state["optimizer_states"][0]["state"]
    rows |= {f"optimizer_states/0/state/{i}/exp_avg": len(entry["exp_avg"]) for i, entry in moments.items()}

    def chunk(tensor, rank):
        chunks = tensor.chunk(world)
        return chunks[rank] if rank < len(chunks) else tensor[:0]

    return [
        {
            **state,
            "state_dict": {name: chunk(tensor, rank) for name, tensor in state["state_dict"].items()},
            "optimizer_states": [
                {"state": {i: {**e, "exp_avg": chunk(e["exp_avg"], rank)} for i, e in moments.items()}}
            ],
            ENTRY: {"rank": rank, "world": world, "rows": rows},
        }
        for rank in range(world)
    ]


def assert_same(ours, theirs):
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


@given(rows=st.lists(st.integers(1, 9), min_size=1, max_size=4), world=worlds)
def test_all_parts_are_the_whole(rows, world):
    assert_same(merge_shards(parts_of(whole(rows), world)), whole(rows))


@given(rows=st.lists(st.integers(1, 9), min_size=1, max_size=4), before=worlds, after=worlds)
def test_other_ranks_hold_what_they_would_have_saved(rows, before, after):
    parts = parts_of(whole(rows), before)
    for rank, expected in enumerate(parts_of(whole(rows), after)):
        assert_same(reshard(parts, rank=rank, world=after), expected)


@given(rows=st.integers(1, 100), world=worlds)
def test_shares_are_those_of_chunk(rows, world):
    sizes = [stop - start for start, stop in (share(rows, rank=r, world=world) for r in range(world))]
    chunks = [len(chunk) for chunk in torch.arange(rows).chunk(world)]
    assert sizes == chunks + [0] * (world - len(chunks))


def test_shards_come_from_a_folder_in_the_order_of_ranks(tmp_path):
    state = whole([4, 40])
    for rank, part in enumerate(parts_of(state, 12)):  # rank=10 comes before rank=2 by name
        torch.save(part, tmp_path / f"rank={rank}.ckpt")
    assert_same(merge_shards(load_shards(tmp_path)), state)


def test_parts_of_two_saves_are_refused():
    two, three = parts_of(whole([4]), 2), parts_of(whole([4]), 3)
    for parts in ([two[0]], [two[1], two[0]], [two[0], three[1]], [whole([4])]):
        with pytest.raises(ValueError, match="are not the shards of one checkpoint, in order"):
            merge_shards(parts)
    two[1]["state_dict"]["w0"] = two[1]["state_dict"]["w0"][:1]
    with pytest.raises(ValueError, match="the shards hold 3 rows of state_dict/w0, which has 4"):
        merge_shards(two)
