"""`--ckpt_path` and `--checkpoint` with a store, as a user types them."""

import numpy as np
import pytest
import yaml

from dflash_lightning.checkpoint.listing import list_manifests
from dflash_lightning.checkpoint.stores.errors import StoreError
from dflash_lightning.checkpoint.stores.local import LocalStore
from dflash_lightning.lightning_cli import run_cli
from dflash_lightning.main import main
from tests.ranks.runs import toy_config
from tests.runs import make_store

LENGTHS = np.random.default_rng(5).integers(6, 33, 44).tolist()
FRESH = ["--trainer.callbacks.if_missing=fresh"]
"""For the last callback of the list."""


@pytest.fixture(scope="module")
def config(tmp_path_factory, toy_target):
    """A YAML with S3Checkpoint on the folder `kept` beside it."""
    folder = tmp_path_factory.mktemp("run")
    store = make_store(folder, toy_target, LENGTHS, held_out=[10, 20])
    values = toy_config(folder, toy_target, store, delay=0.0)
    saves = {
        "uri": str(folder / "kept"),
        "every_n_steps": 2,
        "keep_last": -1,
        "process": False,
        "monitor": "val/tau",
    }
    values["trainer"]["callbacks"] = ["StopOnSignal", {"class_path": "S3Checkpoint", "init_args": saves}]
    path = folder / "toy.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


def kept(config):
    return [m.step for m in reversed(list_manifests(LocalStore(config.parent / "kept"), "").manifests)]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`")  # `validate` here has no callbacks
def test_last_is_the_store_of_the_run_and_every_command_reads_it(config, tmp_path, capsys):
    words = [f"--config={config}"]
    with pytest.raises(StoreError, match="there is no checkpoint"):
        run_cli(["fit", *words, "--ckpt_path=last"])
    with pytest.raises(StoreError, match="there is no checkpoint"):
        run_cli(["validate", *words, "--ckpt_path=last", *FRESH])
    run_cli(["fit", *words, "--trainer.max_steps=4", "--ckpt_path=last", *FRESH])
    assert max(kept(config)) == 4
    whole = run_cli(["fit", *words, "--trainer.max_steps=8", "--ckpt_path=last"])
    assert whole.trainer.global_step == 8
    assert max(kept(config)) == 8
    validated = run_cli(
        ["validate", *words, f"--ckpt_path={config.parent}/kept/step=4", "--trainer.callbacks=[]"]
    )
    assert 1 <= float(validated.trainer.callback_metrics["val/tau"]) <= 4
    words = ["--checkpoint", f"{config.parent}/kept/best", "--output", str(tmp_path / "drafter")]
    assert main(["export", *words]) == 0
    assert (tmp_path / "drafter" / "model.safetensors").exists()


@pytest.mark.parametrize("command", ["fit", "validate", "test"])
def test_an_address_that_holds_nothing_is_refused_before_the_target_is_looked_for(command, config, tmp_path):
    address, target = tmp_path / "nothing", tmp_path / "no-target"
    words = [command, f"--config={config}", f"--model.target={target}", f"--ckpt_path={address}"]
    with pytest.raises(StoreError, match=f"--ckpt_path {address}: there is no checkpoint {address}/last"):
        run_cli(words)
