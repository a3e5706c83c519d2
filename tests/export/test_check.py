"""`export --check`: the folder's config says the same, another process gives the same hidden states, or it is
said."""

import dataclasses

import pytest
import torch

from dflash_lightning.drafter.model import DFlashDrafter
from dflash_lightning.export.check import (
    check_folder,
    config_differences,
    difference,
    hidden_states,
    stored_precision,
)
from dflash_lightning.export.files import read_dtypes
from dflash_lightning.export.reload import answers, probe
from dflash_lightning.export.speculators import export_speculators
from dflash_lightning.export.target import TargetFacts
from dflash_lightning.export.zlab import export_zlab
from tests.export.test_config_json import ALL_SLIDE, SLIDING
from tests.export.test_zlab import TOY, rewrite_config, rewrite_weights


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
    assert stored_precision(state, folder) == str(dtype).removeprefix("torch.")
    expected = hidden_states(TOY, state, dict.fromkeys(state, dtype))
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
    exact, rounded = (
        hidden_states(TOY, state, dict.fromkeys(state, dtype)) for dtype in (torch.float32, torch.bfloat16)
    )
    assert not difference("x", exact, rounded).is_same


@pytest.mark.parametrize("kept", ["norm", "proj"])
def test_a_folder_of_mixed_precision_is_compared_as_it_is(tmp_path, state, kept):
    """Norms in float32 and the rest in bfloat16, as some publish them, and the other way round."""
    mixed = {n: t + 1 / 3 if kept in n else (t + 1 / 3).bfloat16() for n, t in state.items()}
    folder = export_zlab(TOY, mixed, tmp_path, dtype=None)
    words = {"norm": "bfloat16 and float32", "proj": "float32 and bfloat16"}
    assert stored_precision(mixed, folder) == words[kept]
    expected = hidden_states(TOY, mixed, read_dtypes(folder))
    assert difference("x", expected, answers(folder)["dflash_lightning"]).largest == 0
    one = hidden_states(TOY, mixed, dict.fromkeys(mixed, torch.bfloat16))
    assert not difference("x", expected, one).is_same  # one dtype for all would raise a false alarm


def depth(raw):
    raw["num_target_layers"] = 9


def other_taps(raw):
    raw["dflash_config"]["target_layer_ids"] = [0, 2, 4]


def other_mask(raw):
    raw["dflash_config"]["mask_token_id"] = 51


@pytest.mark.parametrize(
    ("config", "change", "line"),
    [
        (TOY, other_taps, "target_layer_ids: [0, 2, 4] there, [1, 3, 5] in the source"),
        (TOY, other_mask, "mask_token_id: 51 there, 52 in the source"),
        (TOY, lambda raw: raw.update(vocab_size=60), "vocab_size: 60 there, 53 in the source"),
        (TOY, depth, "num_target_layers: 9 there, 8 in the source"),
        (TOY, lambda raw: raw.update(eos_token_id=2), "eos_token_id: 2 there, 1 in the source"),
        (
            dataclasses.replace(ALL_SLIDE, sliding_window=2048),  # longer than the probe: equal hidden states
            lambda raw: raw.update(sliding_window=4096),
            "sliding_window: 4096 there, 2048 in the source",
        ),
        (
            dataclasses.replace(ALL_SLIDE, sliding_window=2048),
            lambda raw: raw.update(layer_types=["full_attention"] * 3),
            "layer_types: ['full_attention', 'full_attention', 'full_attention'] there, "
            "['sliding_attention', 'sliding_attention', 'sliding_attention'] in the source",
        ),
    ],
)
def test_what_hidden_states_do_not_show_is_named(tmp_path, config, change, line):
    state = DFlashDrafter(config).state_dict()
    folder = export_zlab(config, state, tmp_path)
    assert config_differences(config, folder) == []
    rewrite_config(folder, change)
    assert line in config_differences(config, folder)
    every = hidden_states(config, state, read_dtypes(folder))
    assert difference("x", every, answers(folder)["dflash_lightning"]).largest == 0


@pytest.mark.parametrize(
    "config",
    [
        TOY,
        SLIDING,
        dataclasses.replace(TOY, sliding_window=32),  # says nothing: no layer slides
        dataclasses.replace(TOY, allow_last_layer_tap=True),
        dataclasses.replace(TOY, initializer_range=0.2, rms_norm_eps=1e-5, bos_token_id=None),
    ],
)
def test_what_a_format_cannot_say_is_no_difference(tmp_path, config):
    state = DFlashDrafter(config).state_dict()
    assert config_differences(config, export_zlab(config, state, tmp_path / "a")) == []
    target = TargetFacts("some/model")
    there = export_speculators(config, state, tmp_path / "b", target=target)
    assert config_differences(config, there) == []
    rewrite_config(there, lambda raw: raw.pop("num_target_layers"))  # as the package saves it
    assert config_differences(config, there) == []
    rewrite_config(there, lambda raw: raw.update(mask_token_id=50))
    assert config_differences(config, there) == ["mask_token_id: 50 there, 52 in the source"]


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
