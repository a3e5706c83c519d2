"""Small real runs: a toy target on disk, a token store made by `prepare`, a Trainer with fixed settings."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning import Callback, Trainer
from lightning.pytorch.loggers import CSVLogger
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import PreTrainedTokenizerFast

from dflash_lightning.data.datamodule import DFlashDataModule
from dflash_lightning.data.prepare import PrepareConfig, prepare
from dflash_lightning.plan.config import PlanConfig
from dflash_lightning.training.build import DrafterShape, TargetSettings
from dflash_lightning.training.module import DFlashModule
from tests.toy import MASK, VOCAB, toy_model

PLAN = PlanConfig(edges=(12, 20, 32), max_tokens=96, max_rows=4)


def save_toy_target(folder: Path, *, seed: int = 0) -> Path:
    """The toy Qwen3 with a tokenizer of as many words as it has rows."""
    toy_model(seed=seed).save_pretrained(folder)
    words = {f"t{i}": i for i in range(VOCAB)}
    core = Tokenizer(WordLevel(words, unk_token="t0"))
    core.pre_tokenizer = Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=core, eos_token="t1").save_pretrained(folder)
    return folder


Row = tuple[int, Sequence[int]]
"""(length, positions that the assistant wrote)"""


def last_two_thirds(length: int) -> Row:
    """A row of `length` tokens whose first third is the prompt."""
    return length, range(length // 3, length)


def write_rows(path: Path, rows: Sequence[Row], *, seed: int = 0) -> Path:
    """Ready rows of random tokens."""
    rng = np.random.default_rng(seed)
    with path.open("w") as file:
        for length, supervised in rows:
            mask = [int(i in supervised) for i in range(length)]
            ids = rng.integers(2, MASK, length).tolist()
            file.write(json.dumps({"input_ids": ids, "loss_mask": mask}) + "\n")
    return path


def make_store(folder: Path, target: Path, lengths: Sequence[int], *, held_out: Sequence[int] = ()) -> Path:
    """A token store of ready rows with the given lengths."""
    rows, others = map(last_two_thirds, lengths), map(last_two_thirds, held_out)
    return make_store_of(folder, target, list(rows), held_out=list(others))


def make_store_of(folder: Path, target: Path, rows: Sequence[Row], *, held_out: Sequence[Row] = ()) -> Path:
    """A token store of ready rows with the given lengths and supervised positions."""
    tokenizer = PreTrainedTokenizerFast.from_pretrained(target)
    folder.mkdir(parents=True, exist_ok=True)
    validation = (str(write_rows(folder / "held_out.jsonl", held_out, seed=1)),) if len(held_out) else ()
    config = PrepareConfig(
        input=(str(write_rows(folder / "rows.jsonl", rows)),),
        output=str(folder / "store"),
        validation_input=validation,
        validation_share=0.0,
        workers=1,
    )
    prepare(config, tokenizer)
    return folder / "store"


def toy_data(store: Path, **options: Any) -> DFlashDataModule:
    values = {"plan": PLAN, "block_size": 4, "num_anchors": 5, **options}
    return DFlashDataModule(str(store), **values)


def toy_module(target: Path, **options: Any) -> DFlashModule:
    values = {
        "target_settings": TargetSettings(dtype="float32"),
        "drafter": DrafterShape(num_layers=2),
        "mask_token": MASK,
        "block_size": 4,
        "num_anchors": 5,
        "lr": 3e-3,
        **options,
    }
    return DFlashModule(str(target), **values)


def toy_trainer(root: Path, *, callbacks: Sequence[Callback] = (), **options: Any) -> Trainer:
    """A CPU Trainer with the settings that cli.py fixes; logs to CSV."""
    torch.set_num_threads(1)
    values = {
        "max_epochs": 2,
        "accumulate_grad_batches": 2,
        "gradient_clip_val": 1.0,
        "log_every_n_steps": 2,
        "logger": CSVLogger(root, name="logs"),
        "enable_checkpointing": False,
        "use_distributed_sampler": False,
        "reload_dataloaders_every_n_epochs": 1,
        "num_sanity_val_steps": 0,
        **options,
    }
    return Trainer(
        accelerator="cpu",
        default_root_dir=root,
        callbacks=list(callbacks),
        enable_progress_bar=False,
        enable_model_summary=False,
        **values,
    )
