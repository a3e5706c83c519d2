"""The YAML of a run -> what the plan needs to know of it. Parsed as `fit` parses it, built not at all.

in    words of `fit`: --config files, --any.key values
out   PlanSettings
law   no model, trainer, token store or device is touched; an unknown key is refused as `fit` refuses it
"""

import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr
from io import StringIO
from typing import Any

from jsonargparse import ArgumentParser

from dflash_lightning.plan.config import PlanConfig
from dflash_lightning.plan_view.model_settings import ModelSettings
from dflash_lightning.plan_view.settings import PlanSettings

_FIT_WORDS = (
    (re.compile("^tip: .*"), "tip: `python cli.py fit --help` lists the settings of a run"),
    (re.compile("Subcommand 'fit' does not accept option (.*)"), r"a run has no setting \1"),
    (re.compile("unrecognized arguments: "), "a run has no setting "),
)
"""What the parser of `fit` says -> the same where another command reads the settings."""
_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}


def read_sections(words: Sequence[str]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The sections `model` and `data` as `fit` would get them."""
    config = _read(words)
    return config["model"], config["data"]


def read_settings(words: Sequence[str]) -> PlanSettings:
    """Raises ValueError where a value makes no sense; leaves through SystemExit where a key is unknown."""
    from dflash_lightning.training.optimizer import AdamWConfig

    config = _read(words)
    data, model, trainer = config["data"], config["model"], config["trainer"]
    optimizer = AdamWConfig(
        **{name: model[name] for name in ("lr", "warmup_fraction", "min_lr_fraction")},
    )
    devices, notes = count_devices(trainer["devices"])
    return PlanSettings(
        plan=plan_config(data["plan"]),
        store=data["store"],
        num_anchors=data["num_anchors"],
        block_size=data["block_size"],
        seed=data["seed"],
        world=devices * trainer["num_nodes"],
        accumulate=trainer["accumulate_grad_batches"],
        max_epochs=None if trainer["max_epochs"] == -1 else trainer["max_epochs"],
        max_steps=trainer["max_steps"],
        rate=optimizer.rate,
        model=model_settings(config),
        notes=notes,
    )


def _read(words: Sequence[str]) -> Any:
    # Lightning takes seconds to import, and --lengths needs none of it.
    from dflash_lightning.lightning_cli import read_config

    said = StringIO()
    try:
        with redirect_stderr(said):
            return read_config(words)
    finally:
        sys.stderr.write(for_other_commands(said.getvalue()))


def for_other_commands(said: str) -> str:
    """What the parser of `fit` wrote on standard error, without the words that are about `fit` alone."""
    for theirs, ours in _FIT_WORDS:
        said = theirs.sub(ours, said)
    return said


def plan_config(values: Mapping[str, Any]) -> PlanConfig:
    """The one thing that is built: `data.plan`, whose class_paths become strategies."""
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--plan", type=PlanConfig)
    plan: PlanConfig = parser.instantiate_classes(parser.parse_object({"plan": dict(values)})).plan
    return plan


def count_devices(devices: Any) -> tuple[int, tuple[str, ...]]:
    """trainer.devices as Lightning reads it -> (devices of one node, what was assumed).

    4 and "4" are four, "0,1" and [0, 1] are two; auto and -1 depend on the machine that trains.
    """
    if isinstance(devices, list):
        return len(devices), ()
    text = str(devices)
    if text.isdigit() and int(text) > 0:
        return int(text), ()
    if re.fullmatch(r"\d+(,\d+)*,?", text) and "," in text:  # ids; the comma tells "0," from a count
        return len(text.strip(",").split(",")), ()
    return 1, (f"trainer.devices is {devices}: planned for 1 device a node; --world-size says otherwise",)


def model_settings(config: Mapping[str, Any]) -> ModelSettings:
    """What decides memory."""
    model, trainer = config["model"], config["trainer"]
    sharded = model["target_settings"]["sharded"]
    return ModelSettings(
        target=model["target"],
        shape=model["drafter"],
        target_bytes=_BYTES[model["target_settings"]["dtype"]],
        target_ranks=count_devices(trainer["devices"])[0] if sharded else 1,
        compute_bytes=4 if str(trainer["precision"] or "32").startswith("32") else 2,  # null is 32-true
        dense_mask=model["attention"] == "sdpa",
        activation_checkpointing=model["activation_checkpointing"],
        head_chunk=model["head_chunk"],
        fixed_slots=config["data"]["anchor_slots"] == "fixed",
    )
