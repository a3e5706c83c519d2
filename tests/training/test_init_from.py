"""model.init_from: a published or exported folder as the start of a run, every key checked."""

import dataclasses

import pytest
import torch

from dflash_lightning.drafter.model import DFlashDrafter
from dflash_lightning.export.speculators import export_speculators
from dflash_lightning.export.target import TargetFacts
from dflash_lightning.export.zlab import export_zlab
from dflash_lightning.training.build import build_drafter
from tests.export.test_zlab import TOY, rewrite_config, rewrite_weights


def export(folder, format, config=TOY):
    state = DFlashDrafter(config, seed=7).state_dict()
    if format == "zlab":
        return export_zlab(config, state, folder), state
    return export_speculators(config, state, folder, target=TargetFacts("some/model")), state


@pytest.mark.parametrize("format", ["zlab", "speculators"])
def test_training_starts_from_the_stored_weights_in_full_precision(tmp_path, format):
    folder, state = export(tmp_path, format)
    if format == "speculators":  # as the package writes it
        rewrite_config(folder, lambda raw: raw.pop("num_target_layers"))
    drafter = build_drafter(TOY, init_from=str(folder))
    for name, parameter in drafter.named_parameters():
        assert parameter.dtype == torch.float32
        assert parameter.requires_grad
        assert torch.equal(parameter, state[name].bfloat16().float())


@pytest.mark.parametrize("format", ["zlab", "speculators"])
def test_a_drafter_with_causal_sliding_layers_only_goes_on_as_it_was(tmp_path, format):
    kinds = ("sliding_attention", "sliding_attention", "full_attention")
    config = dataclasses.replace(TOY, layer_types=kinds, sliding_window=8, causal_in_block="sliding")
    folder, state = export(tmp_path, format, config)
    drafter = build_drafter(config, init_from=str(folder))
    assert torch.equal(drafter.fc.weight, state["fc.weight"].bfloat16().float())
    with pytest.raises(ValueError, match="causal_in_block: sliding there, False here"):
        build_drafter(dataclasses.replace(config, causal_in_block=False), init_from=str(folder))


@pytest.mark.parametrize("format", ["zlab", "speculators"])
@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("hidden_size", 32, "hidden_size: 64 there, 32 here"),
        ("vocab_size", 100, "vocab_size: 53 there, 100 here"),
        ("target_layer_ids", (1, 3), r"target_layer_ids: \(1, 3, 5\) there, \(1, 3\) here"),
        ("mask_token_id", 7, "mask_token_id: 52 there, 7 here"),
        ("block_size", 8, "block_size: 4 there, 8 here"),
        ("rope_theta", 1e4, "rope_theta: 1000000.0 there, 10000.0 here"),
    ],
)
def test_another_shape_is_named_field_by_field(tmp_path, format, field, value, message):
    folder, _ = export(tmp_path, format)
    with pytest.raises(
        ValueError, match=rf"model.init_from .* of another shape \({message}\); set model.draft"
    ):
        build_drafter(dataclasses.replace(TOY, **{field: value}), init_from=str(folder))


@pytest.mark.parametrize("format", ["zlab", "speculators"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.pop("norm.weight"), "missing norm.weight"),
        (lambda s: s.update(extra=torch.ones(1)), "unknown extra"),
        (lambda s: s.update({"fc.weight": torch.ones(64, 64)}), r"fc.weight is \[64, 64\] where the config"),
        (lambda s: s.update({"norm.weight": torch.ones(64, dtype=torch.int32)}), "norm.weight is int32"),
    ],
)
def test_tensors_that_do_not_belong_are_named(tmp_path, format, change, message):
    folder, _ = export(tmp_path, format)
    rewrite_weights(folder, change)
    with pytest.raises(ValueError, match=message):
        build_drafter(TOY, init_from=str(folder))


def test_a_checkpoint_is_no_folder(tmp_path):
    with pytest.raises(
        FileNotFoundError, match="has no config.json, so it is no exported drafter; write one"
    ):
        build_drafter(TOY, init_from=str(tmp_path / "last.ckpt"))
