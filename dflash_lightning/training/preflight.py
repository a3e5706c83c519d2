"""Start-up checks: everything that can be known to fail is said before the first step, on every rank.

Each check is one function that raises ValueError with the thing, its value, the rule and the way out.
Add one by decorating it; the order of the file is the order of the checks.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from lightning import Trainer

from dflash_lightning.data.datamodule import DFlashDataModule

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
            f"trainer.reload_dataloaders_every_n_epochs must be 1, got {reload}: every epoch has its own plan, "
            "of its own length"
        )


@check
def whole_windows_only(trainer: Trainer, module: "DFlashModule", data: DFlashDataModule) -> None:
    limit = trainer.limit_train_batches
    if limit != 1.0 and (isinstance(limit, float) or limit % trainer.accumulate_grad_batches):
        raise ValueError(
            f"trainer.limit_train_batches is {limit}, which would cut an optimizer window of "
            f"{trainer.accumulate_grad_batches} micro-batches; use trainer.max_steps to train for less"
        )
    overfit: float = trainer.overfit_batches  # type: ignore[attr-defined]  # set by setup, not __init__
    if overfit:
        raise ValueError(
            f"trainer.overfit_batches is {overfit}, but it replaces the plan's loader; "
            "prepare a small store to overfit on"
        )


@check
def precision_keeps_fp32_masters(trainer: Trainer, module: "DFlashModule", data: DFlashDataModule) -> None:
    if trainer.precision not in ("32-true", "bf16-mixed"):
        raise ValueError(
            f"trainer.precision is {trainer.precision!r}, but only 32-true and bf16-mixed are supported: "
            "the drafter's weights and moments stay in fp32"
        )


@check
def clipping_is_by_norm(trainer: Trainer, module: "DFlashModule", data: DFlashDataModule) -> None:
    if trainer.gradient_clip_algorithm not in (None, "norm"):
        raise ValueError(
            f"trainer.gradient_clip_algorithm is {trainer.gradient_clip_algorithm!r}, but gradients are "
            "clipped by their global norm, in the same pass that normalises them; leave it out"
        )


@check
def data_fits_the_target(trainer: Trainer, module: "DFlashModule", data: DFlashDataModule) -> None:
    longest = int(data.store.samples("train").lengths.max())
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
