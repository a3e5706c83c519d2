"""The toy's config with S3Checkpoint, and what lies under its prefix: for tests over whole runs."""

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from dflash_lightning.checkpoint.keeping.inventory import Inventory, take_inventory
from dflash_lightning.checkpoint.layout import LAST
from dflash_lightning.checkpoint.stores.errors import StoreError
from dflash_lightning.checkpoint.stores.keys import join_key
from dflash_lightning.checkpoint.stores.open import open_store
from dflash_lightning.checkpoint.stores.protocol import ObjectStore
from dflash_lightning.checkpoint.stores.settings import StoreSettings
from tests.ranks.runs import toy_config


def stored_config(
    folder: Path, target: Path, store: Path, *, saves: dict[str, Any], watched: dict[str, Any], **trainer: Any
) -> dict[str, Any]:
    """`saves`: arguments of S3Checkpoint, `settings` as a StoreSettings, {}: a run without it; `watched`: of
    Watched."""
    values = toy_config(folder, target, store, delay=0.0)
    values["trainer"] |= {"enable_model_summary": False, **trainer}
    return with_saves(values, folder, saves, watched)


def with_saves(
    values: dict[str, Any], folder: Path, saves: dict[str, Any], watched: dict[str, Any]
) -> dict[str, Any]:
    """Any config with these two callbacks instead of those that save."""
    ours = ("StopOnSignal", "S3Checkpoint", "ModelCheckpoint", "Watched")
    callbacks = [c for c in values["trainer"]["callbacks"] if not c["class_path"].endswith(ours)]
    callbacks += [
        {"class_path": "StopOnSignal"},
        {
            "class_path": "tests.ranks.watched.Watched",
            "init_args": {"folder": str(folder / "watch"), **watched},
        },
    ]
    if saves:
        settings = {"settings": asdict(saves["settings"])} if "settings" in saves else {}
        callbacks.append({"class_path": "S3Checkpoint", "init_args": saves | settings})
    values["trainer"]["callbacks"] = callbacks
    return values


def assert_all_whole(uri: str, settings: StoreSettings) -> Inventory:
    """No checkpoint that was published is missing or corrupt, and last.json points to one of them.

    What is deleted while this looks is looked at again. Data without a manifest was never published.
    """
    store, prefix = open_store(uri, settings)
    for _ in range(10):
        found = take_inventory(store, prefix, deep=True)
        broken = [
            (e.name, e.reason) for e in found.entries if e.manifest is not None and e.state != "complete"
        ]
        broken += [(e.name, e.reason) for e in found.entries if e.state == "corrupt"]
        keys = {e.manifest.key for e in found.entries if e.manifest is not None}
        last = join_key(prefix, LAST)
        pointed = not exists(store, last) or json.loads(store.read(last))["manifest"] in keys
        if not broken and pointed:
            return found
        time.sleep(0.3)
    raise AssertionError(f"broken: {broken}; last.json points to one that is there: {pointed}")


def exists(store: ObjectStore, key: str) -> bool:
    try:
        store.read(key)
    except StoreError as error:
        if error.kind != "missing":
            raise
        return False
    return True


def assert_equal_runs(ours: Path, theirs: Path) -> None:
    """Weights, moments, schedule and position of two `Watched` runs, bit for bit."""
    a, b = (torch.load(path / "watch" / "final.ckpt", weights_only=True) for path in (ours, theirs))
    for part in ("state_dict", "optimizer_states", "lr_schedulers", "DFlashDataModule", "global_step"):
        assert differences(a[part], b[part], part) == []


def differences(a: Any, b: Any, name: str) -> list[str]:
    """Paths of the leaves that differ."""
    if isinstance(a, torch.Tensor):
        return [] if torch.equal(a, b) else [name]
    if isinstance(a, dict):
        if a.keys() != b.keys():
            return [name]
        return [path for key in a for path in differences(a[key], b[key], f"{name}.{key}")]
    if isinstance(a, list | tuple):
        if len(a) != len(b):
            return [name]
        return [
            p for i, (x, y) in enumerate(zip(a, b, strict=True)) for p in differences(x, y, f"{name}.{i}")
        ]
    return [] if a == b else [name]
