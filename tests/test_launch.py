"""The launch fragments say what they claim, laid over a large config."""

import re
import subprocess
from pathlib import Path

import pytest

from dflash_lightning.lightning_cli import read_config

ROOT = Path(__file__).parents[1]
LAUNCH = ROOT / "configs" / "launch"


def launched(name):
    return read_config([f"--config={ROOT}/configs/qwen3_8b.yaml", f"--config={LAUNCH / name}.yaml"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "nodes", "devices", "targets", "batches_a_step"),
    [
        ("one_node_8gpus", 1, 8, 0, 32),
        ("split_6_2", 1, 2, 3, 32),
        ("several_nodes", 4, 8, 0, 32),
        ("fsdp", 1, 8, 0, 32),
        ("sharded_target", 1, 8, 0, 32),
    ],
)
def test_each_uses_the_gpus_it_names_and_keeps_the_window(name, nodes, devices, targets, batches_a_step):
    config = launched(name)
    trainer, model = config["trainer"], config["model"]
    assert (trainer["num_nodes"], trainer["devices"], model["target_devices"]) == (nodes, devices, targets)
    assert nodes * devices * trainer["accumulate_grad_batches"] == batches_a_step
    assert "'find_unused_parameters': True" not in str(trainer["strategy"])


def test_no_fragment_is_left_out():
    assert {path.stem for path in LAUNCH.glob("*.yaml")} == {
        "one_node_8gpus",
        "split_6_2",
        "several_nodes",
        "fsdp",
        "sharded_target",
    }


@pytest.mark.slow
def test_a_sharded_target_keeps_its_other_settings_and_has_nothing_that_it_cannot_do():
    for names in (["sharded_target"], ["sharded_target", "fsdp"]):
        words = [f"--config={LAUNCH / name}.yaml" for name in names]
        config = read_config([f"--config={ROOT}/configs/qwen3_8b.yaml", *words])
        settings = {"dtype": "bfloat16", "attention": "sdpa", "sharded": True}
        assert config["model"]["target_settings"] == settings
        assert config["trainer"]["inference_mode"] is False
        callbacks = [each["class_path"].rpartition(".")[2] for each in config["trainer"]["callbacks"]]
        assert not {"HeldOutDecoding", "PrefetchBalance"} & set(callbacks)


@pytest.mark.slow
def test_the_slurm_file_is_a_script_that_starts_an_existing_config():
    path = LAUNCH / "slurm.sbatch"
    subprocess.run(["bash", "-n", path], check=True)
    text = path.read_text()
    for name in re.findall(r"--config (\S+)", text):
        assert (ROOT / name).is_file(), name
    words = text.split("cli.py fit", 1)[1].split("||", 1)[0].replace("\\\n", " ").split()
    assert words[-2:] == ["--ckpt_path", "last"]
    callbacks = read_config([str(ROOT / word) if "configs/" in word else word for word in words[:-2]])[
        "trainer"
    ]["callbacks"]
    store = next(c for c in callbacks if c["class_path"].endswith("S3Checkpoint"))
    assert store["init_args"]["if_missing"] == "fresh"  # else its first start would find no checkpoint
    tasks = launched("several_nodes")["trainer"]
    assert f"--nodes={tasks['num_nodes']}" in text
    assert f"--ntasks-per-node={tasks['devices']}" in text
