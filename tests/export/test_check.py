"""`export --check`: another process reads the folder and gives the same hidden states, or it is said."""

import dataclasses

import pytest
import torch

from dflash_lightning.drafter.model import DFlashDrafter
from dflash_lightning.export.check import check_folder, difference, hidden_states, stored_dtype
from dflash_lightning.export.reload import answers, probe
from dflash_lightning.export.zlab import export_zlab
from tests.export.test_zlab import TOY, rewrite_weights


@pytest.fixture
def state():
    return DFlashDrafter(dataclasses.replace(TOY, initializer_range=0.2)).state_dict()


@pytest.fixture
def folder(tmp_path, state):
    return export_zlab(TOY, state, tmp_path / "drafter")


def test_the_probe_is_the_same_wherever_it_is_made():
    assert all(torch.equal(a, b) for a, b in zip(probe(TOY), probe(TOY), strict=True))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_what_is_read_is_the_source_rounded_to_the_stored_dtype(tmp_path, state, dtype):
    folder = export_zlab(TOY, state, tmp_path, dtype=dtype)
    assert stored_dtype(folder) == dtype
    expected = hidden_states(TOY, state, dtype)
    found = answers(folder)
    assert found.keys() == {"dflash_lightning"}
    assert difference("x", expected, found["dflash_lightning"]).largest == 0


@pytest.mark.parametrize(
    ("found", "same"),
    [
        (torch.tensor([2.0, -1.0]), True),
        (torch.tensor([2.00001, -1.0]), True),  # another order of additions
        (torch.tensor([2.001, -1.0]), False),
        (torch.tensor([float("nan"), -1.0]), False),
        (torch.tensor([2.0]), False),
    ],
)
def test_same_means_up_to_the_order_of_additions(found, same):
    assert difference("x", torch.tensor([2.0, -1.0]), found).is_same == same


def test_rounding_alone_is_told_apart(state):
    """The check would be blind if bfloat16 weights passed for float32 ones."""
    exact, rounded = (hidden_states(TOY, state, dtype) for dtype in (torch.float32, torch.bfloat16))
    assert not difference("x", exact, rounded).is_same


@pytest.mark.slow
def test_a_fresh_process_agrees_and_sees_one_changed_weight(folder, state):
    (found,) = check_folder(TOY, state, folder)
    assert (found.reader, found.largest) == ("dflash_lightning", 0)

    def spoil(weights):
        weights["layers.1.mlp.up_proj.weight"][0, 0] += 1

    rewrite_weights(folder, spoil)
    (found,) = check_folder(TOY, state, folder)
    assert not found.is_same


@pytest.mark.slow
def test_what_the_process_says_reaches_the_user(folder, state):
    rewrite_weights(folder, lambda weights: weights.pop("fc.weight"))
    with pytest.raises(
        ValueError, match=r"a fresh process cannot read .*drafter: ValueError: .* missing fc.weight"
    ):
        check_folder(TOY, state, folder)
