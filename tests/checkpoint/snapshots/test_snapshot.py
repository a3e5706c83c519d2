import copy
import io
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dflash_lightning.checkpoint.snapshots.arena import Arena
from dflash_lightning.checkpoint.snapshots.freezing import plan_snapshot
from dflash_lightning.checkpoint.snapshots.snapshot import take_snapshot
from dflash_lightning.checkpoint.snapshots.thaw import thaw

DTYPES = [torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.bool, torch.uint8]
SHAPES = [(), (0,), (1,), (3,), (2, 3), (4, 0)]


@pytest.fixture(scope="module")
def arena():
    arena = Arena.private(1 << 20)
    yield arena
    arena.close()


class Counter:
    def __init__(self):
        self.count = 0


def through_file(state, *, weights_only=True):
    """What torch.load gives back of what torch.save stores."""
    file = io.BytesIO()
    torch.save(state, file)
    return torch.load(io.BytesIO(file.getvalue()), weights_only=weights_only)


def tensors_in(state):
    if isinstance(state, torch.Tensor):
        return [state]
    values = state.values() if isinstance(state, dict) else state if isinstance(state, list | tuple) else []
    return [tensor for value in values for tensor in tensors_in(value)]


def shape_of(state):
    """The state with a description in place of each tensor: sharing, place in the storage, and values."""
    first_seen = {}
    for tensor in tensors_in(state):
        first_seen.setdefault(tensor.untyped_storage()._cdata, len(first_seen))

    def describe(value):
        if isinstance(value, torch.Tensor):
            storage = value.untyped_storage()
            where = first_seen[storage._cdata], value.storage_offset(), value.stride(), storage.nbytes()
            return type(value), value.dtype, where, value.requires_grad, value.tolist()
        if isinstance(value, dict):
            return type(value), [(key, describe(item)) for key, item in value.items()]
        if isinstance(value, list | tuple):
            return type(value), [describe(item) for item in value]
        return type(value), value

    return describe(state)


@st.composite
def states(draw):
    """Nested states whose tensors come from a small pool, so that ties and views are common."""
    pool = []
    for dtype, shape in draw(
        st.lists(st.tuples(st.sampled_from(DTYPES), st.sampled_from(SHAPES)), min_size=1)
    ):
        pool.append((torch.rand(shape) * 9).to(dtype))
    pool += [tensor[1:] for tensor in pool if tensor.ndim and len(tensor) > 1]
    pool += [tensor.mT for tensor in pool if tensor.ndim == 2]
    pool += [torch.nn.Parameter(tensor) for tensor in pool if tensor.is_floating_point()]
    plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
    leaves = plain | st.sampled_from(pool)
    return draw(
        st.recursive(
            leaves,
            lambda inner: (
                st.lists(inner, max_size=4)
                | st.lists(inner, max_size=3).map(tuple)
                | st.dictionaries(st.text(max_size=3), inner, max_size=4)
            ),
            max_leaves=12,
        )
    )


@given(state=states())
@settings(max_examples=40, deadline=None)
def test_a_thawed_snapshot_is_stored_as_the_state_itself_would_have_been(arena, state):
    reference = through_file(state)
    frozen = take_snapshot(state, arena)
    for tensor in tensors_in(state):
        with torch.no_grad():
            tensor.zero_()  # training goes on
    assert shape_of(through_file(thaw(frozen, arena.buffer))) == shape_of(reference)


def test_everything_that_is_no_tensor_is_frozen_at_once(arena):
    counter, array, nested = Counter(), np.arange(4), {"list": [1]}
    generator = np.random.default_rng(0)
    state = {"counter": counter, "array": array, "nested": nested, "rng": generator}
    frozen = take_snapshot(state, arena)
    expected = copy.deepcopy(generator).random()
    counter.count, array[:], nested["list"] = 1, 9, None
    generator.random()
    thawed = thaw(frozen, arena.buffer)
    assert thawed["counter"].count == 0
    assert thawed["array"].tolist() == [0, 1, 2, 3]
    assert thawed["nested"] == {"list": [1]}
    assert thawed["rng"].random() == expected


def test_a_real_training_state_survives(arena):
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
    model[1].weight = model[0].weight
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(2, 3)).sum().backward()
    optimizer.step()
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "rng": torch.get_rng_state(),
    }
    reference = through_file(copy.deepcopy(state))
    frozen = take_snapshot(state, arena)
    optimizer.step()
    thawed = thaw(frozen, arena.buffer)
    assert thawed["model"]._metadata == state["model"]._metadata
    assert shape_of(through_file(thawed)) == shape_of(reference)


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
def test_sparse_and_meta_tensors_are_kept_as_torch_keeps_them(arena):
    sparse = torch.sparse_coo_tensor([[0, 2]], [1.0, 2.0], (3,), check_invariants=True)
    frozen = take_snapshot({"sparse": sparse, "meta": torch.empty(2, device="meta")}, arena)
    loaded = through_file(thaw(frozen, arena.buffer), weights_only=False)
    assert loaded["sparse"].to_dense().tolist() == [1.0, 0.0, 2.0]
    assert loaded["meta"].device.type == "meta"
    assert loaded["meta"].shape == (2,)


def test_a_storage_is_copied_once_however_many_tensors_look_at_it():
    whole = torch.zeros(10_000)
    once = plan_snapshot([whole]).num_bytes
    assert plan_snapshot([whole, whole, whole[5:], whole.view(100, 100)]).num_bytes < once + 1000


def test_thawing_copies_nothing(arena):
    frozen = take_snapshot({"weight": torch.zeros(4, dtype=torch.uint8)}, arena)
    thawed = thaw(frozen, arena.buffer)
    arena.buffer[:4] = b"\1\2\3\4"
    assert thawed["weight"].tolist() == [1, 2, 3, 4]


def test_what_travels_to_the_writer_is_small(arena):
    frozen = take_snapshot([torch.zeros(10) for _ in range(100)], arena)
    assert len(pickle.dumps(frozen)) < 200


def wrapped():
    """A tensor that holds others inside, as a DTensor does."""

    class Wrapper(torch.Tensor):
        @staticmethod
        def __new__(cls):
            return torch.Tensor._make_wrapper_subclass(cls, (2, 3))

        def __tensor_flatten__(self):
            return ["inner"], None

        @staticmethod
        def __tensor_unflatten__(inner, meta, size, stride):
            return Wrapper()

        @classmethod
        def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
            raise NotImplementedError

    return Wrapper()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: {"f": lambda: 0}, r"cannot be saved: .*lambda.*; keep such objects out of state_dict"),
        (wrapped, r"a Wrapper of shape \(2, 3\) is no plain tensor; save sharded state as shards"),
        (
            lambda: [(t := torch.zeros(2)), t.view(torch.int32)],
            "the same memory appears as torch.float32 and as torch.int32, which torch.save does not keep",
        ),
    ],
)
def test_what_cannot_be_saved_is_refused_by_name(make, message, arena):
    with pytest.raises(ValueError, match=message):
        take_snapshot(make(), arena)


def test_a_snapshot_that_does_not_fit_is_refused():
    small = Arena.private(100)
    with pytest.raises(ValueError, match=r"a snapshot of \d+ bytes does not fit into 100"):
        take_snapshot(torch.zeros(1000), small)
    small.close()
