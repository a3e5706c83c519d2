"""Oracles 6.25, 6.26: names, shapes and keys that other programs read; what loads is what was trained."""

import dataclasses
import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers import AutoConfig
from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding

from dflash_lightning.drafter.config import DrafterConfig
from dflash_lightning.drafter.model import DFlashDrafter
from dflash_lightning.export.names import expected_shapes
from dflash_lightning.export.zlab import export_zlab, load_zlab

TOY = DrafterConfig(
    hidden_size=64,
    vocab_size=53,
    num_layers=3,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    intermediate_size=48,
    block_size=4,
    mask_token_id=52,
    target_layer_ids=(1, 3, 5),
    num_target_layers=8,
    rope_theta=1e6,
    max_position_embeddings=512,
    bos_token_id=0,
    eos_token_id=1,
)
QWEN3_8B = DrafterConfig(
    hidden_size=4096,
    vocab_size=151936,
    num_layers=5,
    num_heads=32,
    num_kv_heads=8,
    head_dim=128,
    intermediate_size=12288,
    block_size=16,
    mask_token_id=151669,
    target_layer_ids=(1, 9, 17, 25, 33),
    num_target_layers=36,
    rope_theta=1e6,
    max_position_embeddings=40960,
    bos_token_id=151643,
    eos_token_id=151645,
)
QWEN3_4B = dataclasses.replace(QWEN3_8B, hidden_size=2560, intermediate_size=9728)


@pytest.fixture
def drafter():
    return DFlashDrafter(dataclasses.replace(TOY, initializer_range=0.2)).eval()


@pytest.fixture
def folder(tmp_path, drafter):
    return export_zlab(drafter.config, drafter.state_dict(), tmp_path / "drafter")


def parameters(shapes):
    return sum(torch.Size(shape).numel() for shape in shapes.values())


@pytest.mark.parametrize(
    ("config", "tensors", "total"),
    [(QWEN3_8B, 58, 1_048_626_432), (QWEN3_4B, 58, 537_427_200), (TOY, 36, 77_408)],
)
def test_names_and_shapes_are_those_of_the_released_format(config, tensors, total):
    shapes = expected_shapes(config)
    assert (len(shapes), parameters(shapes)) == (tensors, total)
    with torch.device("meta"):
        state = DFlashDrafter(config).state_dict()
    assert {name: tuple(tensor.shape) for name, tensor in state.items()} == shapes
    assert not [
        name for name in shapes if any(word in name for word in ("rotary", "embed", "lm_head", "bias"))
    ]


def test_a_few_shapes_by_hand():
    shapes = expected_shapes(QWEN3_8B)
    assert shapes["fc.weight"] == (4096, 20480)
    assert shapes["layers.4.self_attn.k_proj.weight"] == (1024, 4096)
    assert shapes["layers.0.mlp.down_proj.weight"] == (4096, 12288)
    assert shapes["layers.0.self_attn.q_norm.weight"] == (128,)


def test_one_contiguous_bfloat16_file_that_says_pt(folder):
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors"]
    with safe_open(folder / "model.safetensors", framework="pt") as file:
        assert file.metadata() == {"format": "pt"}
    assert {tensor.dtype for tensor in load_file(folder / "model.safetensors").values()} == {torch.bfloat16}


def inputs(generator):
    def normal(*shape):
        return torch.randn(*shape, generator=generator)

    return normal(1, 4, 64), normal(1, 6, 192), torch.arange(10)[None], None


def test_whoever_may_read_the_config_may_read_the_weights(folder):
    """A server often runs as another user."""
    assert len({path.stat().st_mode for path in folder.iterdir()}) == 1


def test_the_exported_drafter_is_the_trained_one_rounded_to_bfloat16(folder, drafter):
    config, state = load_zlab(folder)
    again = DFlashDrafter(config)
    again.load_state_dict(state)
    rounded = DFlashDrafter(drafter.config)
    rounded.load_state_dict(
        {name: tensor.bfloat16().float() for name, tensor in drafter.state_dict().items()}
    )
    arguments = inputs(torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert torch.equal(again(*arguments), rounded(*arguments))
        assert not torch.equal(again(*arguments), drafter(*arguments))  # rounding did something


def test_an_export_in_full_precision_loses_nothing(tmp_path, drafter):
    export_zlab(drafter.config, drafter.state_dict(), tmp_path, dtype=torch.float32)
    config, state = load_zlab(tmp_path)
    assert config == drafter.config
    assert all(torch.equal(state[name], tensor) for name, tensor in drafter.state_dict().items())


def test_transformers_reads_the_rope_base(folder):
    config = AutoConfig.from_pretrained(folder)
    assert config.model_type == "qwen3"
    frequencies = Qwen3RotaryEmbedding(config).inv_freq
    assert frequencies.dtype == torch.float32
    assert frequencies[1].item() == pytest.approx(
        1e6 ** (-2 / 16), rel=1e-6
    )  # .177828, not the default's .316


def test_transformers_4_would_read_the_rope_base_too(folder):
    raw = json.loads((folder / "config.json").read_text())
    assert raw["rope_theta"] == raw["rope_parameters"]["rope_theta"] == 1e6


def rewrite_config(folder, change):
    path = folder / "config.json"
    raw = json.loads(path.read_text())
    change(raw)
    path.write_text(json.dumps(raw))


def rewrite_weights(folder, change):
    path = folder / "model.safetensors"
    state = load_file(path)
    change(state)
    save_file(state, path, metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda s: s.pop("fc.weight"),
            r"does not hold the drafter its config describes: missing fc\.weight$",
        ),
        (lambda s: s.update({"lm_head.weight": torch.ones(2)}), "unknown lm_head.weight"),
        (
            lambda s: s.update({"norm.weight": torch.ones(2)}),
            r"norm.weight is \[2\] where the config says \[64\]",
        ),
        (lambda s: (s.pop("norm.weight"), s.update(x=torch.ones(1))), "missing norm.weight; unknown x"),
    ],
)
def test_weights_that_do_not_fit_are_named(folder, change, message):
    rewrite_weights(folder, change)
    with pytest.raises(ValueError, match=message):
        load_zlab(folder)


def test_a_state_dict_of_another_drafter_is_not_written(tmp_path, drafter):
    with pytest.raises(ValueError, match="the state dict does not hold .* missing layers.3.input_layernorm"):
        export_zlab(
            dataclasses.replace(TOY, num_layers=4, layer_types=()), drafter.state_dict(), tmp_path / "x"
        )
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_half_a_folder_is_no_drafter(folder, name):
    (folder / name).unlink()
    with pytest.raises(
        FileNotFoundError, match=f"has no {name}, so it is no exported drafter; write one with"
    ):
        load_zlab(folder)


def test_broken_json_is_named(folder):
    (folder / "config.json").write_text("{")
    with pytest.raises(ValueError, match="config.json is not JSON: "):
        load_zlab(folder)
