"""The estimate of memory, against tensors that are really there."""

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from dflash_lightning.drafter import DFlashDrafter
from dflash_lightning.plan import PlanConfig, Samples, plan_epoch
from dflash_lightning.plan_view.geometry import (
    drafter_parameters,
    geometry_of,
    read_geometry,
    target_parameters,
)
from dflash_lightning.plan_view.model_settings import ModelSettings
from dflash_lightning.plan_view.resources import batch_parts, estimate_memory, target_parameters_of_a_rank
from dflash_lightning.target.geometry import drafter_config_for
from dflash_lightning.target.model import Target
from tests.toy import HIDDEN, MASK, VOCAB, toy_config, toy_llama, toy_model

SHAPE = {"num_layers": 2, "intermediate_size": 160}
BLOCK = 8
ROWS, LENGTH, SLOTS = 3, 40, 5
POSITIONS = SLOTS * BLOCK


def settings(**options):
    return ModelSettings(
        **{"target": "toy", "shape": SHAPE, "target_bytes": 4, "compute_bytes": 4, **options}
    )


def parts(**options):
    given = settings(**options)
    geometry = geometry_of(toy_config(), given, block_size=BLOCK)
    shapes = (np.array([ROWS]), np.array([LENGTH]), np.array([POSITIONS]))
    found = batch_parts(*shapes, geometry, given, block_size=BLOCK)
    return {name: int(values[0]) for name, values in found.items()}


def drafter_config():
    return drafter_config_for(toy_config(), block_size=BLOCK, mask_token_id=MASK, **SHAPE)


def saved_bytes(*, autocast, checkpointing):
    """Bytes of the distinct tensors that a drafter's forward pass keeps for the backward pass."""
    drafter = DFlashDrafter(drafter_config(), activation_checkpointing=checkpointing)
    weights = {p.untyped_storage().data_ptr() for p in drafter.parameters()}
    kept = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = (storage.nbytes(), tensor)  # alive, so that no address is used twice
        return tensor

    anchors = (torch.arange(SLOTS) * 3 + 1).repeat(ROWS, 1)
    taps = torch.randn(ROWS, LENGTH, 2 * HIDDEN, dtype=torch.bfloat16 if autocast else torch.float32)
    masks = drafter.build_masks(anchors, torch.ones_like(anchors, dtype=torch.bool), LENGTH)
    positions = torch.arange(LENGTH + POSITIONS).repeat(ROWS, 1)
    embeddings = torch.randn(ROWS, POSITIONS, HIDDEN)
    with (
        torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
        torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast),
    ):
        drafter(embeddings, taps, positions, masks)
    copies = 2 * drafter_parameters(drafter_config()) if autocast and not checkpointing else 0
    own_taps = taps.nbytes  # with the batch's hidden states, not with the drafter
    return sum(size for size, _ in kept.values()) - copies - own_taps


def test_hidden_states_are_the_size_of_the_taps():
    target = Target(toy_model())
    states = target.tapped_states(torch.zeros(ROWS, LENGTH, dtype=torch.long), (1, 5), final=False)
    assert parts()["hidden_states"] == states.taps.nbytes
    assert parts(target_bytes=2)["hidden_states"] == states.taps.bfloat16().nbytes


def test_the_mask_is_the_size_of_the_mask():
    drafter = DFlashDrafter(drafter_config())
    anchors = (torch.arange(SLOTS) * 3 + 1).repeat(ROWS, 1)
    masks = drafter.build_masks(anchors, torch.ones_like(anchors, dtype=torch.bool), LENGTH)
    assert parts()["mask"] == masks.full.nbytes
    assert parts(dense_mask=False)["mask"] == 0


@pytest.mark.parametrize("autocast", [False, True])
def test_the_drafter_keeps_what_the_formula_counts(autocast):
    given = {"compute_bytes": 2, "target_bytes": 2} if autocast else {}
    estimate = parts(**given)["drafter"]
    real = saved_bytes(autocast=autocast, checkpointing=False)
    assert estimate == pytest.approx(real, rel=0.05)


def test_checkpointing_keeps_one_state_per_layer():
    """The rest of `drafter` is one layer's tensors, which come and go in the backward pass."""
    both = [parts(activation_checkpointing=c, compute_bytes=2, target_bytes=2) for c in (False, True)]
    layer_states = 4 * ROWS * POSITIONS * HIDDEN
    assert saved_bytes(autocast=True, checkpointing=True) < both[1]["drafter"] < both[0]["drafter"]
    assert both[1]["drafter"] - both[0]["drafter"] / 2 > layer_states


def test_the_head_holds_one_chunk_of_logits():
    """Drafted positions: ROWS x SLOTS x (BLOCK - 1)."""
    drafted = ROWS * SLOTS * (BLOCK - 1)
    kept = 2 * drafted * HIDDEN * 4
    assert parts(head_chunk=10)["head"] == 10 * VOCAB * (4 + 4) + kept
    assert parts(head_chunk=10_000)["head"] == drafted * VOCAB * (4 + 4) + kept


def test_weights_are_counted_as_they_are():
    drafter = DFlashDrafter(drafter_config())
    assert drafter_parameters(drafter_config()) == sum(p.numel() for p in drafter.parameters())
    for model in (toy_model(), toy_model(tied=True), toy_llama()):
        real = sum(p.numel() for p in model.parameters())
        assert target_parameters(model.config) == pytest.approx(real, rel=0.02)  # norms are left out


@pytest.mark.parametrize(("model", "ranks"), [(toy_model(), 2), (toy_model(tied=True), 3), (toy_llama(), 8)])
def test_of_a_target_that_ranks_hold_together_each_has_the_ends_its_part_and_one_layer(model, ranks):
    geometry = geometry_of(model.config, settings(), block_size=BLOCK)
    layers = sum(p.numel() for p in model.model.layers.parameters())
    ends = sum(p.numel() for p in model.parameters()) - layers
    one = layers / len(model.model.layers)
    held = target_parameters_of_a_rank(geometry, settings(target_ranks=ranks))
    assert held == pytest.approx(ends + layers / ranks + one, rel=0.02)
    assert target_parameters_of_a_rank(geometry, settings()) == geometry.target_parameters


def test_the_neediest_batch_and_the_fullest_window_are_found():
    lengths = np.array([10] * 8 + [40] * 4)
    samples = Samples(lengths, lengths // 2)
    config = PlanConfig(edges=(10, 40), max_tokens=80, max_rows=4, max_block_tokens=0)
    plan = plan_epoch(samples, config, num_anchors=6, block_size=BLOCK, seed=0, epoch=0)
    given = settings(target_bytes=2)
    geometry = geometry_of(toy_config(), given, block_size=BLOCK)
    memory = estimate_memory(plan, samples, geometry, given, window_batches=2)
    position = 2 * HIDDEN * 2  # two taps of bf16
    # Of two shapes of batches, the short one has fewer hidden states, but more blocks: 4 x 5 against 2 x 6.
    assert (memory.rows, memory.padded_length) == (4, 10)
    assert memory.hidden_states == 40 * position
    assert memory.largest_hidden_states == 80 * position
    tokens = np.diff(plan.offsets) * plan.padded_length
    windows = [tokens[i : i + 2].sum() for i in range(0, len(tokens), 2)]
    assert memory.window_hidden_states == max(windows) * position
    assert memory.epoch_hidden_states == lengths.sum() * position
    assert memory.batch == memory.hidden_states + max(
        memory.target, memory.drafter + memory.mask + memory.head
    )


def test_fixed_slots_hold_all_anchors_in_every_row():
    samples = Samples(np.array([10, 10]), np.array([2, 3]))
    config = PlanConfig(edges=(10,), max_tokens=80)
    plan = plan_epoch(samples, config, num_anchors=6, block_size=BLOCK, seed=0, epoch=0)
    geometry = geometry_of(toy_config(), settings(), block_size=BLOCK)

    def mask(fixed):
        return estimate_memory(plan, samples, geometry, settings(fixed_slots=fixed), window_batches=1).mask

    assert mask(False) == 2 * 3 * BLOCK * (10 + 3 * BLOCK)  # as many as the fuller row needs
    assert mask(True) == 2 * 6 * BLOCK * (10 + 6 * BLOCK)


def test_a_config_file_is_enough(toy_target, tmp_path):
    """No weights are read."""
    (tmp_path / "config.json").write_bytes((toy_target / "config.json").read_bytes())
    here = read_geometry(settings(target=str(tmp_path)), block_size=BLOCK)
    assert here == geometry_of(toy_config(), settings(), block_size=BLOCK)
    with pytest.raises(OSError, match="no file named"):
        AutoModelForCausalLM.from_pretrained(tmp_path)


@pytest.mark.parametrize("target", ["nowhere", "nobody/no-such-model"])
def test_a_target_that_is_not_here_is_no_failure(target):
    said = read_geometry(settings(target=target), block_size=BLOCK)
    assert said.startswith(f"unknown: target {target} is no folder here with a config.json")


def test_a_drafter_that_does_not_fit_is_no_failure(toy_target):
    said = read_geometry(settings(target=str(toy_target), shape={"num_layers": 20}), block_size=BLOCK)
    assert said.startswith("unknown: no drafter fits target")
    assert "has no 20 evenly spaced taps" in said


def test_the_embedded_target_is_not_unpacked_for_an_estimate(tmp_path, monkeypatch):
    monkeypatch.setenv("DFLASH_CACHE", str(tmp_path))
    said = read_geometry(settings(target="smollm2-135m-instruct"), block_size=BLOCK)
    assert said.startswith("unknown: target smollm2-135m-instruct")
    assert not list(tmp_path.iterdir())
