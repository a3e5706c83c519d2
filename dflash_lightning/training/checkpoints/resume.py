"""What a checkpoint adds to Lightning's own, and how a run goes on from it.

law   a resumed run is a fresh pass over the rest of the epoch: the cursor says what is left, and Lightning's
      counters of the old world are not needed. All is plain Python or tensors (loads with weights_only=True)
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from lightning import Trainer
from lightning.pytorch.loops.loop import _Loop
from lightning.pytorch.utilities import rank_zero_info, rank_zero_warn

from dflash_lightning.differing import differing

if TYPE_CHECKING:
    from dflash_lightning.training.module import DFlashModule


def loops_at_epoch_start(
    fit_loop: dict[str, Any], *, epoch: int, steps: int, unaligned: int = 0
) -> dict[str, Any]:
    """Lightning's fit-loop state, rewritten to "`epoch` epochs are done, `steps` optimizer steps were made".

    Lightning would count on from the micro-batches of the old world and accumulation (spec/batching.md 6,
    rows 5 and 6); its optimizer-step counter, which is what global_step reads, stays. `unaligned`
    micro-batches of an unfinished window are run again.
    """
    done = {"ready": epoch, "started": epoch, "processed": epoch, "completed": epoch}
    batches = fit_loop["epoch_loop.batch_progress"]
    seen = batches["total"]["processed"] - unaligned
    total = {**batches["total"], "ready": seen, "started": seen, "completed": seen}
    return {
        **fit_loop,
        "epoch_progress": {**fit_loop["epoch_progress"], "total": dict(done), "current": dict(done)},
        "epoch_loop.batch_progress": {
            **batches,
            "total": total,
            "current": dict.fromkeys(batches["current"], 0),
            "is_last_batch": False,
        },
        "epoch_loop.state_dict": {**fit_loop["epoch_loop.state_dict"], "_batches_that_stepped": steps},
    }


def require_same_drafter(saved: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
    """Raises ValueError where the checkpoint's drafter has another shape than the one configured."""
    lines = differing(saved, ours, "in the checkpoint", "now")
    if lines:
        raise ValueError(
            f"the checkpoint holds another drafter ({'; '.join(lines)}): "
            "resume with the checkpoint's model settings, or start a fresh run"
        )


def _require_same_target(saved: Mapping[str, Any], module: "DFlashModule") -> None:
    trained_with = saved.get("target_digest", module.target_digest)  # unknown to earlier checkpoints
    if trained_with != module.target_digest:
        raise ValueError(
            f"the checkpoint's drafter was trained with target {saved['target']} of digest {trained_with}, "
            f"but {module.target_name} has {module.target_digest}: other weights or another config, whose "
            "hidden states mean something else. Give model.target as it was, or export the checkpoint and "
            "start a fresh run from it with model.init_from"
        )


def _tell_what_is_left(position: Mapping[str, int], trainer: Trainer) -> None:
    """Lightning ends such a run at once, as one that has reached its goal."""
    for made, limit, name in (
        (position["steps"], trainer.max_steps, "max_steps"),
        (position["epoch"], trainer.max_epochs, "max_epochs"),
    ):
        if limit is not None and 0 <= limit <= made and made:
            rank_zero_warn(
                f"nothing is left to train: the checkpoint has {made} {name.removeprefix('max_')} behind it, "
                f"and trainer.{name} is {limit}; raise it to go on"
            )


def plain(value: Any) -> Any:
    """Tuples as lists, so that what was saved compares equal to what is loaded."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def save_extras(module: "DFlashModule") -> dict[str, Any]:
    """The `dflash` entry of a checkpoint."""
    return {
        "version": 1,
        "target": module.target_name,
        "target_digest": module.target_digest,
        "drafter": plain(asdict(module.drafter_config)),
        "settings": plain(_settings(module)),
        "logged": module.logged.state_dict(),
        "trees": module.tree_watch.state_dict(),
        "guard": module.guard.state_dict(),
        "validated_at": module.validated_at,
        "unaligned": len(module.window_sums.losses),  # micro-batches of a window that has not stepped yet
    }


def load_extras(module: "DFlashModule", checkpoint: dict[str, Any]) -> None:
    """Refuse another drafter or target, list other settings (YAML wins), make Lightning start from the
    cursor."""
    saved = checkpoint.get("dflash")
    if saved is None:
        raise ValueError(
            "this checkpoint was not written by DFlash-Lightning (it has no `dflash` entry); "
            "start from a drafter in z-lab's format with model.init_from instead"
        )
    require_same_drafter(saved["drafter"], plain(asdict(module.drafter_config)))
    if module.trainer.state.fn != "fit":
        return
    _require_same_target(saved, module)
    position = checkpoint[type(module.data).__qualname__]["position"]  # the DataModule is restored later
    _tell_what_is_left(position, module.trainer)
    for line in differing(saved["settings"], plain(_settings(module)), "in the checkpoint", "now"):
        rank_zero_info(f"resuming with another setting, which wins: {line}")
    module.logged.load_state_dict(saved["logged"])
    if "trees" in saved:  # not in earlier checkpoints
        module.tree_watch.load_state_dict(saved["trees"])
    module.guard.load_state_dict(saved["guard"])
    module.validated_at = saved["validated_at"]
    checkpoint["loops"]["fit_loop"] = loops_at_epoch_start(
        checkpoint["loops"]["fit_loop"],
        epoch=position["epoch"],
        steps=position["steps"],
        unaligned=saved["unaligned"],
    )


def _settings(module: "DFlashModule") -> dict[str, Any]:
    """What may change between a checkpoint and the run that resumes from it; it is only reported."""
    trainer = module.trainer
    return {
        "model.target": module.target_name,
        "model.objective": repr(module.objective),
        **{f"model.{key}": value for key, value in asdict(module.optimizer_config).items()},
        "trainer.world_size": trainer.world_size,
        "trainer.accumulate_grad_batches": trainer.accumulate_grad_batches,
        "trainer.gradient_clip_val": trainer.gradient_clip_val,
        "trainer.precision": str(trainer.precision),
        "trainer.max_epochs": trainer.max_epochs,
        "trainer.max_steps": trainer.max_steps,
    }


def forget_restart(trainer: Trainer) -> None:
    """Lightning's restart bookkeeping is about its own batch counters, which a resumed run starts anew.

    The setter of FitLoop would keep the mark wherever max_steps is set.
    """
    _Loop.restarting.fset(trainer.fit_loop, False)  # type: ignore[attr-defined]  # a property


def catch_up_validation(module: "DFlashModule") -> None:
    """Run the validation that was due at the step of the checkpoint, where it was saved before."""
    trainer, position = module.trainer, module.data.position
    if not position.steps or module.validated_at == position.steps:
        return
    loop, progress = trainer.fit_loop.epoch_loop, trainer.fit_loop.epoch_progress.current
    epoch_ended = position.cursor == 0
    # Validation belongs to the last step and its epoch, and is logged there.
    progress.completed -= epoch_ended
    loop._batches_that_stepped -= 1
    if _validation_was_due(trainer, epoch_ended=epoch_ended):
        trainer.validating = True
        loop.val_loop.run()
        trainer.training = True
    progress.completed += epoch_ended
    loop._batches_that_stepped += 1


def _validation_was_due(trainer: Trainer, *, epoch_ended: bool) -> bool:
    loop = trainer.fit_loop.epoch_loop
    if not loop._should_check_val_epoch():
        return False
    if trainer.check_val_every_n_epoch is not None:
        return epoch_ended
    every: int = trainer.val_check_batch  # type: ignore[assignment]  # preflight: a number of batches
    return loop.batch_progress.total.ready % every == 0
