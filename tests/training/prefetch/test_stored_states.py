"""Training from hidden states on disk is training with the target, and anything else is refused."""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from dflash_lightning.commands import prepare_hidden_states
from dflash_lightning.objective.kinds import Distillation
from dflash_lightning.training.build import DrafterShape, TargetSettings
from tests.ranks import jobs
from tests.runs import PLAN, make_store, save_toy_target, toy_data, toy_module, toy_trainer
from tests.slow import slow

LENGTHS = [12, 30, 7, 18, 25, 9, 31, 14, 22, 11]
ONE_ROW = {"plan": replace(PLAN, max_rows=1)}


def write(output, target, store, *options):
    words = ["--hidden-states", "--output", output, "--target", target, "--store", store, "--taps", "1,5"]
    assert prepare_hidden_states.main([*map(str, words), "--dtype", "float32", *options]) == 0
    return str(output)


@pytest.fixture(scope="module")
def store(tmp_path_factory, toy_target):
    return make_store(tmp_path_factory.mktemp("store"), toy_target, LENGTHS, held_out=[10, 30])


@pytest.fixture(scope="module")
def one_by_one(tmp_path_factory, toy_target, store):
    """Every sample ran alone and without padding, as in batches of one row."""
    return write(tmp_path_factory.mktemp("one") / "s", toy_target, store, "--max-tokens", "1", "--final")


@pytest.fixture(scope="module")
def batched(tmp_path_factory, toy_target, store):
    return write(tmp_path_factory.mktemp("many") / "s", toy_target, store)


def fit(root, target, store, states=None, module=None, **options):
    module = {"hidden_states": states, **(module or {})}
    return jobs.fit(str(root), str(target), str(store), module=module, logging=False, **options)


def same(one, other):
    return all(torch.equal(value, other["weights"][name]) for name, value in one["weights"].items())


@pytest.mark.parametrize(
    "objective", [{"objective": Distillation()}, *slow({})], ids=["distillation", "cross_entropy"]
)
def test_equal_batches_train_bit_for_bit_as_with_the_target(
    tmp_path, toy_target, store, one_by_one, objective
):
    with_target = fit(tmp_path / "target", toy_target, store, module=objective, data=ONE_ROW)
    from_disk = fit(tmp_path / "disk", toy_target, store, one_by_one, objective, data=ONE_ROW)
    assert same(from_disk, with_target)
    assert from_disk["steps"] == with_target["steps"]
    validated = [
        [row for row in run["rows"] if any(name.startswith("val/") for name in row)]
        for run in (with_target, from_disk)
    ]
    assert validated[0] == validated[1] != []


def test_other_batches_train_the_same_up_to_last_digits(tmp_path, toy_target, store, batched):
    with_target = fit(tmp_path / "target", toy_target, store)
    from_disk = fit(tmp_path / "disk", toy_target, store, batched)
    assert len(with_target["steps"]) > 3
    # AdamW divides by the gradient's own size, so that last digits grow from step to step (3e-6 seen here).
    for step, (one, other) in enumerate(zip(from_disk["steps"], with_target["steps"], strict=True)):
        assert one["norm"] == pytest.approx(other["norm"], rel=1e-4 if step else 1e-6)
        assert one["train/loss"] == pytest.approx(other["train/loss"], rel=1e-5)


@pytest.mark.parametrize("begun_from_disk", [True, *slow(False)])
def test_a_run_resumes_from_disk_bit_for_bit(tmp_path, toy_target, store, one_by_one, begun_from_disk):
    first = one_by_one if begun_from_disk else None
    whole = fit(tmp_path / "whole", toy_target, store, first, data=ONE_ROW, keep=True)
    kept = str(tmp_path / "whole" / "kept" / "step=3.ckpt")
    resumed = fit(tmp_path / "resumed", toy_target, store, one_by_one, data=ONE_ROW, resume=kept)
    assert len(resumed["steps"]) == len(whole["steps"]) - 3
    assert same(resumed, whole)


def test_only_embedding_and_head_of_the_target_are_loaded(tmp_path, toy_target, store, batched, capfd):
    module = toy_module(toy_target, hidden_states=batched)
    trainer = toy_trainer(tmp_path, max_steps=1)
    trainer.fit(module, toy_data(store))
    assert module.target.depth == 1
    assert "UNEXPECTED" not in "".join(capfd.readouterr())  # the layers that were left out, on purpose


def start(tmp_path, target, store, states, **options):
    toy_trainer(tmp_path, max_steps=1).fit(
        toy_module(target, hidden_states=states, **options), toy_data(store)
    )


def test_what_is_not_of_this_run_is_refused_before_training(tmp_path, toy_target, store, batched):
    cases = {
        r"tapped layers: \[1, 5\] there, \[1, 4\] in this run": {
            "drafter": DrafterShape(num_layers=2, target_layer_ids=[1, 4])
        },
        "precision of the target: float32 there, bfloat16 in": {
            "target_settings": TargetSettings(dtype="bfloat16")
        },
        r"final states \(for distillation\): no there, yes in": {"objective": Distillation()},
        "model.target_devices is 2, but hidden states come from disk": {"target_devices": 2},
    }
    for message, options in cases.items():
        with pytest.raises(ValueError, match=message):
            start(tmp_path, toy_target, store, batched, **options)
    with pytest.raises(ValueError, match="are not there: write them with"):
        start(tmp_path, toy_target, store, str(tmp_path / "none"))


def test_another_store_and_another_target_are_refused(tmp_path, toy_target, store, batched):
    other_store = make_store(tmp_path / "store", toy_target, [*LENGTHS, 8], held_out=[10, 30])
    with pytest.raises(
        ValueError, match=r"token store \(digest of its content\): \w{32} there, \w{32} in this"
    ):
        start(tmp_path, toy_target, other_store, batched)
    (tmp_path / "target").mkdir()
    other = save_toy_target(tmp_path / "target")
    path = other / "model.safetensors"
    weights = load_file(path)
    weights["model.layers.7.mlp.down_proj.weight"] *= 1.01  # behind the last tap, but another target
    save_file(weights, path, metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"target \(digest of config and weights\): \w{24} there, \w{24} in"):
        start(tmp_path, other, store, batched)


def test_damage_stops_training_with_the_file_and_the_sample(tmp_path, toy_target, store):
    states = write(tmp_path / "s", toy_target, store)
    path = tmp_path / "s" / "shard-00000.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"shard-00000.safetensors are damaged: sample \d+ has checksum"):
        fit(tmp_path, toy_target, store, states)
