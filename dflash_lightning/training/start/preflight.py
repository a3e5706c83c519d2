"""Start-up checks: everything that can be known to fail is said before the first step, on every rank.

Each check is one function that raises ValueError with the thing, its value, the rule and the way out.
Add one by decorating it; the order of the file is the order of the checks.
"""

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from lightning import Trainer
from lightning.pytorch.callbacks import Callback, GradientAccumulationScheduler
from lightning.pytorch.strategies import ModelParallelStrategy

from dflash_lightning.checkpoint.versions import versions
from dflash_lightning.data.datamodule import DFlashDataModule
from dflash_lightning.data.epochs import Position
from dflash_lightning.data.plan_state import require_ranks_agree, saved_plan
from dflash_lightning.target.device_map import require_devices, require_first_devices
from dflash_lightning.training.gather import texts_of_all_ranks
from dflash_lightning.training.sharded_target import require_shardable
from dflash_lightning.training.start.agreement import require_agreement

if TYPE_CHECKING:
    from dflash_lightning.training.module import DFlashModule

Check = Callable[[Trainer, "DFlashModule", DFlashDataModule], None]
CHECKS: list[Check] = []


def check(function: Check) -> Check:
    CHECKS.append(function)
    return function


def run_checks(trainer: Trainer, module: "DFlashModule", data: DFlashDataModule) -> None:
    """Run all checks in order; the first that fails ends the run."""
    for function in CHECKS:
        function(trainer, module, data)


@check
def lightning_leaves_the_sampler_alone(
    trainer: Trainer, module: "DFlashModule", data: DFlashDataModule
) -> None:
    if trainer._accelerator_connector.use_distributed_sampler:
        raise ValueError(
            "trainer.use_distributed_sampler must be false: the plan already deals every batch to one rank, "
            "and Lightning's own sampler would deal them again"
        )
    reload: int = trainer.reload_dataloaders_every_n_epochs  # type: ignore[attr-defined]  # set by a connector
    if reload != 1:
        raise ValueError(
            f"trainer.reload_dataloaders_every_n_epochs must be 1, got {reload}: every epoch has its own "
            "plan, of its own length"
        )


@check
def whole_windows_only(trainer: Trainer, module: "DFlashModule", data: DFlashDataModule) -> None:
    limit = trainer.limit_train_batches
    if isinstance(limit, int) or limit != 1.0:  # the integer 1 is one batch
        raise ValueError(
            f"trainer.limit_train_batches is {limit} (fast_dev_run sets it, too), but an epoch is a plan "
            "that is trained to its end; use trainer.max_steps to train for less"
        )
    overfit: float = trainer.overfit_batches  # type: ignore[attr-defined]  # set by setup, not __init__
    if overfit:
        raise ValueError(
            f"trainer.overfit_batches is {overfit}, but it replaces the plan's loader; "
            "prepare a small store to overfit on"
        )


@check
def clipping_has_a_limit(trainer: Trainer, module: "DFlashModule", data: DFlashDataModule) -> None:
    limit = trainer.gradient_clip_val
    if limit is not None and limit <= 0:
        raise ValueError(
            f"trainer.gradient_clip_val is {limit}: the largest norm that a gradient may have must be above "
            "0; null does not clip"
        )


@check
def accumulation_is_constant(trainer: Trainer, module: "DFlashModule", data: DFlashDataModule) -> None:
    callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]  # set by a connector
    if any(isinstance(callback, GradientAccumulationScheduler) for callback in callbacks):
        raise ValueError(
            "GradientAccumulationScheduler is in trainer.callbacks, but windows are cut once an epoch; set "
            "trainer.accumulate_grad_batches, and resume with another value to change it"
        )


@check
def validation_comes_at_agreed_steps(
    trainer: Trainer, module: "DFlashModule", data: DFlashDataModule
) -> None:
    """By time, one rank could validate while another trains on, and both would wait for ever. By a count
    within the epoch, a resumed run would validate at other steps than one that never stopped."""
    if trainer._val_check_time_interval is not None:  # type: ignore[attr-defined]  # set by setup
        raise ValueError(
            "trainer.val_check_interval is a time, but clocks of ranks differ and validation is run by all "
            "of them together; give a number of batches, with check_val_every_n_epoch null"
        )
    every, window = trainer.val_check_interval, trainer.accumulate_grad_batches
    if every == 1.0 and isinstance(every, float):  # the end of an epoch; the integer 1 is every batch
        return
    if trainer.check_val_every_n_epoch is not None or every % window:
        raise ValueError(
            f"trainer.val_check_interval is {every}: validate at the end of every n-th epoch (leave it out), "
            f"or every so many batches of the whole run: a multiple of accumulate_grad_batches "
            f"({window}), with check_val_every_n_epoch null"
        )


@check
def precision_keeps_fp32_masters(trainer: Trainer, module: "DFlashModule", data: DFlashDataModule) -> None:
    if trainer.precision not in ("32-true", "bf16-mixed"):
        raise ValueError(
            f"trainer.precision is {trainer.precision!r}, but only 32-true and bf16-mixed are supported: "
            "the drafter's weights and moments stay in fp32"
        )


@check
def weights_stay_trainable_behind_a_validation(
    trainer: Trainer, module: "DFlashModule", data: DFlashDataModule
) -> None:
    """FSDP2 gathers weights into memory that it keeps; made in inference mode, none could be trained on."""
    if isinstance(trainer.strategy, ModelParallelStrategy) and trainer.validate_loop.inference_mode:
        raise ValueError(
            "trainer.inference_mode must be false with ModelParallelStrategy: weights that are gathered for "
            "a validation are trained on afterwards"
        )


@check
def clipping_is_by_norm(trainer: Trainer, module: "DFlashModule", data: DFlashDataModule) -> None:
    if trainer.gradient_clip_algorithm not in (None, "norm"):
        raise ValueError(
            f"trainer.gradient_clip_algorithm is {trainer.gradient_clip_algorithm!r}, but gradients are "
            "clipped by their global norm, in the same pass that normalises them; leave it out"
        )


@check
def every_target_has_a_device(trainer: Trainer, module: "DFlashModule", data: DFlashDataModule) -> None:
    on_cuda = trainer.strategy.root_device.type == "cuda"
    available = torch.cuda.device_count() if on_cuda else None
    require_devices(module.target_devices, local_world=trainer.num_devices, available=available)
    drafters = getattr(trainer.strategy, "parallel_devices", None) or [trainer.strategy.root_device]
    require_first_devices(module.target_devices, drafters)
    if module.target_devices > 1 and module.prefetch is not None and not module.prefetch.depth:
        raise ValueError(
            f"model.target_devices is {module.target_devices}, but model.prefetch.depth 0 is no pipeline: "
            "a single one would be used. Set a depth of at least 1, or target_devices to 1"
        )


@check
def ranks_of_a_sharded_target_run_in_step(
    trainer: Trainer, module: "DFlashModule", data: DFlashDataModule
) -> None:
    if module.target_settings.sharded:
        require_shardable(
            ranks=trainer.num_devices,
            target_devices=module.target_devices,
            depth=module.prefetch.depth if module.prefetch is not None else 0,
            stored=module.hidden_states is not None,
            inference_mode=trainer.validate_loop.inference_mode,
        )


@check
def data_fits_the_target(trainer: Trainer, module: "DFlashModule", data: DFlashDataModule) -> None:
    splits = [data.store.samples("train"), data.held_out.samples("validation")]
    longest = max(int(samples.lengths.max(initial=0)) for samples in splits)
    positions = module.target_config.max_position_embeddings
    if longest > positions:
        raise ValueError(
            f"the longest sample has {longest} tokens, but the target has {positions} positions; "
            "prepare the data with a smaller --max-length"
        )


@check
def schedule_is_sane(trainer: Trainer, module: "DFlashModule", data: DFlashDataModule) -> None:
    if trainer.state.fn != "fit":
        return
    data.horizon()
    rates = [module.optimizer_config.rate(i / 1000) for i in range(1001)]
    peak = module.optimizer_config.lr
    if not all(0 <= rate <= peak * (1 + 1e-9) for rate in rates):
        raise ValueError(f"the learning-rate schedule leaves [0, {peak}]: {min(rates)} to {max(rates)}")


@check
def all_ranks_have_the_same_software_and_target(
    trainer: Trainer, module: "DFlashModule", data: DFlashDataModule
) -> None:
    """A node with another target would train on other hidden states, and nothing would ever fail."""
    if trainer.world_size == 1:
        return
    require_agreement(
        trainer,
        "versions",
        versions(),
        way_out="Install the same versions on every node: pip freeze shows them",
    )
    require_agreement(
        trainer,
        "targets",
        {"digest": module.target_digest},
        way_out=f"Give every node the same weights of {module.target_name}",
    )


@check
def all_ranks_have_the_same_plan(trainer: Trainer, module: "DFlashModule", data: DFlashDataModule) -> None:
    """Each rank plans for itself; a stale copy of the store on one node would deal other batches there."""
    if trainer.world_size == 1 or trainer.state.fn != "fit":
        return
    ours = json.dumps(saved_plan(data.epochs, Position(), data.store))
    require_ranks_agree([json.loads(text) for text in texts_of_all_ranks(trainer, ours)])
