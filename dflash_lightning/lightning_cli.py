"""fit, validate and test through LightningCLI: what is linked, what may not be changed, nothing else."""

import os
import pkgutil
import signal
import warnings
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml
from jsonargparse import set_parsing_settings
from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.cli import ArgsType, LightningArgumentParser, LightningCLI, SaveConfigCallback
from lightning.pytorch.loggers import Logger, WandbLogger

from dflash_lightning import callbacks
from dflash_lightning.callbacks.s3_checkpoint import S3Checkpoint
from dflash_lightning.callbacks.signals import StoppedBySignal
from dflash_lightning.checkpoint.stores.settings import StoreSettings
from dflash_lightning.data.datamodule import DFlashDataModule
from dflash_lightning.dry_run import rehearse
from dflash_lightning.redact import hidden_environment, redact
from dflash_lightning.replacing_lists import with_fresh_lists
from dflash_lightning.short_errors import ShortErrors
from dflash_lightning.training.checkpoints.address_connector import fetch_addresses
from dflash_lightning.training.checkpoints.checkpoint_path import meant_by, require_usable
from dflash_lightning.training.module import DFlashModule
from dflash_lightning.training.start.agreement import require_agreement
from dflash_lightning.training.start.wandb_runs import begin_wandb, resume_wandb

# `class_path: GradNorm` in YAML resolves to classes that are imported; no callback is added by itself.
for _module in pkgutil.iter_modules(callbacks.__path__):
    import_module(f"{callbacks.__name__}.{_module.name}")

# Both before the parser is made: `${model.block_size}` must work under subcommands too, and a docstring
# under a config field is that option's help.
set_parsing_settings(omegaconf_absolute_to_relative_paths=True, docstring_parse_attribute_docstrings=True)

# Said at every start, about things that are meant: the target runs behind the transfer of each batch, and
# Lightning 2.6 is not yet at ease with torch 2.13's pytree.
warnings.filterwarnings("ignore", message=".*You have overridden `on_after_batch_transfer`")
warnings.filterwarnings("ignore", message=r".*isinstance\(treespec, LeafSpec\)")

# data/sampler.py gives each rank its share of the plan, every epoch has its own; preflight refuses others.
FIXED = {"use_distributed_sampler": False, "reload_dataloaders_every_n_epochs": 1}
SAME_SETTINGS = (
    "Start every node with the same files and words; what must differ, such as the path of a local disk, "
    "belongs into the environment: ${oc.env:NAME}"
)
DRY_RUN = (
    "Start as usual on every rank, make one step with the heaviest batch of each bucket, tell seconds and "
    "memory, try the checkpoint store, and end; nothing is written."
)
DEFAULTS = {"max_epochs": 6, "gradient_clip_val": 1.0, "log_every_n_steps": 10, "num_sanity_val_steps": 0}


class SaveConfig(SaveConfigCallback):
    """Keeps the resolved config of every run that writes into the log folder, and gives it to the loggers;
    secrets stay out of both (redact.py). All ranks must have been given the same one."""

    def __init__(self, parser: Any, config: Any, words: Sequence[str] = (), **options: Any) -> None:
        super().__init__(parser, config, **options)
        self.words = words

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        hidden = hidden_environment(_texts(self.words), os.environ)
        config = redact(yaml.safe_load(self.parser.dump(self.config, skip_none=False)), hidden)
        config.pop("dry_run", None)
        require_agreement(trainer, "settings", config, way_out=SAME_SETTINGS)
        folder = Path(trainer.log_dir or trainer.default_root_dir)  # asked for on all ranks: it broadcasts
        if self.already_saved or not trainer.is_global_zero:
            return
        self.already_saved = True
        folder.mkdir(parents=True, exist_ok=True)
        free_name(folder, "config").write_text(yaml.safe_dump(config, sort_keys=False, allow_unicode=True))
        for logger in trainer.loggers:
            if isinstance(logger, WandbLogger) and stage == "fit":
                begin_wandb(logger, _run_folder(self.config))
            logger.log_hyperparams(config)


def _texts(words: Sequence[str]) -> list[str]:
    """The words of a command line, and what is in the YAML files that they name."""
    files = (Path(word.split("=", 1)[-1]) for word in words if word.endswith((".yaml", ".yml")))
    return [*words, *(path.read_text(encoding="utf-8") for path in files if path.is_file())]


def _run_folder(config: Any) -> Path:
    return Path(config.trainer.default_root_dir or ".")


def require_each_once(listed: Sequence[Mapping[str, Any]]) -> None:
    """Two of ours would log the same names. `listed`: `trainer.callbacks` as in the YAML.

    Raises: ValueError naming the class.
    """
    ours = [c["class_path"] for c in listed if c["class_path"].startswith(callbacks.__name__)]
    for path in ours:
        if ours.count(path) > 1:
            raise ValueError(
                f"trainer.callbacks lists {path.rpartition('.')[2]} {ours.count(path)} times: keep one. In a "
                "later file `callbacks+:` adds to the list so far, and `callbacks:` replaces it"
            )


def require_weights(command: str, config: Any) -> None:
    """`validate` and `test` of fresh random weights would give figures that look like a drafter's.

    Raises: ValueError where neither a checkpoint nor an exported drafter is named.
    """
    if command != "fit" and not config.get("ckpt_path") and not config.model.init_from:
        raise ValueError(
            f"{command} measures a checkpoint, and none is named: give --ckpt_path best, last, a file or an "
            "address; or model.init_from, the folder of an exported drafter"
        )


def free_name(folder: Path, stem: str) -> Path:
    """config.yaml, config-2.yaml, ...: a resumed run keeps both configs."""
    number = 1
    while (path := folder / (f"{stem}.yaml" if number == 1 else f"{stem}-{number}.yaml")).exists():
        number += 1
    return path


class TrainerParser(ShortErrors, LightningArgumentParser):
    """Knows the callbacks and loggers that YAML may name."""

    def class_names(self) -> list[str]:
        return class_names_below(Callback, Logger)


def class_names_below(*bases: type[Any]) -> list[str]:
    below: list[type[Any]] = []
    for base in bases:
        below += base.__subclasses__()
    return [one.__name__ for one in below] + (class_names_below(*below) if below else [])


class DFlashCLI(LightningCLI):
    """`python cli.py fit --config ...`; a second --config is laid over the first."""

    @staticmethod
    def subcommands() -> dict[str, set[str]]:
        """fit, validate and test; the second says for each what LightningCLI fills in itself."""
        return {
            "fit": {"model", "train_dataloaders", "val_dataloaders", "datamodule"},
            "validate": {"model", "dataloaders", "datamodule"},
            "test": {"model", "dataloaders", "datamodule"},
        }

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        parser.link_arguments("model.block_size", "data.block_size")
        parser.link_arguments("model.num_anchors", "data.num_anchors")
        parser.link_arguments("data.seed", "model.seed")

    def _prepare_subcommand_parser(
        self, klass: type, subcommand: str, **options: Any
    ) -> LightningArgumentParser:
        parser = super()._prepare_subcommand_parser(klass, subcommand, **options)
        if subcommand == "fit":
            parser.add_argument("--dry_run", type=bool, default=False, help=DRY_RUN)
        return parser

    def parse_arguments(self, parser: LightningArgumentParser, args: ArgsType) -> None:
        """Parse the words main.py passes on; Lightning's own would warn that sys.argv is there as well."""
        assert isinstance(args, list)
        self.config = parser.parse_args(with_fresh_lists(args))

    def _parse_ckpt_path(self) -> None:
        """Leave the config alone: YAML and command line win over what a checkpoint remembers."""

    def before_instantiate_classes(self) -> None:
        """`--ckpt_path last` is the newest checkpoint of this config; none there is an error, told by every
        rank before anything is built."""
        if not self.config.get("subcommand"):
            return
        config = self.config[self.config.subcommand]
        if config.get("dry_run"):
            config.ckpt_path = None
        listed = [callback.as_dict() for callback in config.trainer.callbacks or []]
        require_each_once(listed)
        require_weights(self.config.subcommand, config)
        if config.get("ckpt_path"):
            config.ckpt_path = meant_by(config.ckpt_path, listed, _run_folder(config))
            require_usable(config.ckpt_path, listed, fit=self.config.subcommand == "fit")
        if config.get("ckpt_path") and self.config.subcommand == "fit":
            loggers = config.trainer.logger
            resume_wandb(loggers if isinstance(loggers, list) else [loggers], _run_folder(config))

    def _run_subcommand(self, subcommand: str) -> None:
        if self.config[subcommand].get("dry_run"):
            rehearse(self.trainer, self.model, self.datamodule)
        else:
            super()._run_subcommand(subcommand)

    def instantiate_classes(self) -> None:
        """`--ckpt_path s3://...` is understood without S3Checkpoint too, which brings settings of its own."""
        super().instantiate_classes()
        if not any(isinstance(callback, S3Checkpoint) for callback in self.trainer.checkpoint_callbacks):
            fetch_addresses(self.trainer, StoreSettings())


def run_cli(arguments: Sequence[str]) -> DFlashCLI:
    """Parse and run; `arguments` begin with the subcommand. The result has trainer, model, datamodule."""
    return _cli(list(arguments), run=True)


def parse_cli(arguments: Sequence[str]) -> DFlashCLI:
    """Build trainer, model and datamodule from `--config ...` without a subcommand, and run nothing."""
    return _cli(list(arguments), run=False)


class _ParsedOnly(DFlashCLI):
    """Parses like `fit` and stops there: no seed is set, nothing is built, no checkpoint is looked for."""

    def _set_seed(self) -> None:
        """Leave the global generators alone."""

    def before_instantiate_classes(self) -> None:
        """Nothing will run."""

    def instantiate_classes(self) -> None:
        """Nothing is built."""

    def _run_subcommand(self, subcommand: str) -> None:
        """Nothing runs."""


def read_config(arguments: Sequence[str]) -> Any:
    """The config that `fit` would run with (files merged, interpolated, checked), as plain nested values."""
    return _cli(["fit", *arguments], run=True, kind=_ParsedOnly).config["fit"].as_dict()


def _cli(arguments: ArgsType, *, run: bool, kind: type[DFlashCLI] = DFlashCLI) -> DFlashCLI:
    return kind(
        DFlashModule,
        DFlashDataModule,
        save_config_callback=SaveConfig if run else None,
        save_config_kwargs={"words": arguments},
        trainer_defaults={**DEFAULTS, **FIXED},
        seed_everything_default=0,
        auto_configure_optimizers=False,
        load_from_checkpoint_support=False,
        parser_kwargs={"parser_mode": "omegaconf+"},
        parser_class=TrainerParser,
        args=arguments,
        run=run,
    )


def main(arguments: Sequence[str]) -> int:
    """`python cli.py fit ...`, `validate ...` or `test ...`."""
    try:
        run_cli(arguments)
    except StoppedBySignal:
        # torchrun answers the first rank's exit with SIGTERM to the others, which are closing their loggers.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise
    return 0
