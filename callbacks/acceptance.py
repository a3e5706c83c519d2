"""What a validation says about acceptance, for people: one line, a table and a picture."""

from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_info

from dflash_lightning.training.module import DFlashModule
from dflash_lightning.training.watch.curve_pictures import slot_picture
from dflash_lightning.training.watch.log_pictures import log_figure, log_table

COLUMNS = ("step", "slot", "accuracy")


class Acceptance(Callback):
    """Says after each validation, and after `test`, how many tokens a target pass would commit,
    teacher-forced, and gives the accuracy by slot to loggers that take tables and pictures
    (`val/acceptance`).

    The values themselves (`val/tau`, `val/streak`, `val/accuracy`, `val/accuracy_slot_{k}`) are logged with
    or without this callback: the best checkpoint is chosen by them.
    """

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not trainer.sanity_checking:
            self._say(trainer, pl_module, "val", "validation")

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._say(trainer, pl_module, "test", "test")

    def _say(self, trainer: Trainer, pl_module: LightningModule, stage: str, word: str) -> None:
        assert isinstance(pl_module, DFlashModule)
        values = {name: float(value) for name, value in trainer.callback_metrics.items()}
        slots = [values[f"{stage}/accuracy_slot_{slot}"] for slot in range(1, pl_module.block_size)]
        step = pl_module.data.position.steps
        rank_zero_info(
            f"{word} at step {step}: {values[f'{stage}/tau']:.3f} tokens per target pass (streak "
            f"{values[f'{stage}/streak']:.3f}); {100 * values[f'{stage}/accuracy']:.1f} % of slots right, "
            f"{100 * slots[0]:.1f} % of the first, {100 * slots[-1]:.1f} % of the last"
        )
        rows = [(float(step), float(slot), accuracy) for slot, accuracy in enumerate(slots, start=1)]
        log_table(trainer, f"{stage}/acceptance", COLUMNS, rows)
        log_figure(trainer, f"{stage}/acceptance_picture", slot_picture(slots))
