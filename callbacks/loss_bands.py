"""Loss and acceptance by bucket, an alarm when a bucket leaves its band, and mix told from instability."""

from typing import Any

from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_info, rank_zero_warn

from dflash_lightning.training.module import DFlashModule
from dflash_lightning.training.watch.curve_pictures import band_picture
from dflash_lightning.training.watch.log_pictures import log_figure, log_table
from dflash_lightning.training.watch.loss_bands import BandRule
from dflash_lightning.training.watch.loss_watch import COLUMNS, LossWatch


class LossBands(Callback):
    """Logs, over all optimizer steps since the last log, sums of all ranks:

        loss/bucket_{i}        weighted mean loss of bucket i; NaN where none of its tokens came
        acceptance/bucket_{i}  tau of bucket i, teacher-forced, on the training data
        loss/spread            largest minus smallest of the losses
        loss/mix_pct           percent of the step-to-step variance of the loss that the changing mix of
                               buckets explains; the rest is their own (formula: training/watch/mix_split.py)
        loss/out_of_band       buckets above their band for some of the steps

    Warns once an excursion, when a bucket's loss has been above its own band (watch/loss_bands.py) for
    some of its steps in a row. Says at the end of an epoch whether the movement of the raw curve, one point
    a micro-batch, is mix or instability, with a table and a picture (`loss/bands`) for loggers that can.

    Skipped steps are in none of the values.

    Args:
        band: How wide a band is, and how long the loss has to be above it.
    """

    def __init__(self, band: BandRule = BandRule()) -> None:  # noqa: B008  (frozen)
        self.band = band
        self._watch: LossWatch | None = None
        self._epoch = 0
        self._loaded: dict[str, Any] | None = None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, DFlashModule)
        self._watch = LossWatch(pl_module.data.edges, self.band)
        self._epoch = trainer.current_epoch
        if self._loaded:
            self._watch.load_state_dict(self._loaded["watch"])
            if self._loaded["epoch"] < trainer.current_epoch:  # saved behind the last step of its epoch
                self._tell(trainer, self._watch, self._loaded["epoch"])
            self._loaded = None  # for this run alone

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        assert isinstance(pl_module, DFlashModule)
        step, watch = pl_module.last_step, self._watch
        if not pl_module.step_finished or step is None or watch is None:
            return
        self._epoch = trainer.current_epoch
        if step.skipped:
            watch.skipped += bool(pl_module.last_totals.non_finite)
        else:
            alarms, news = watch.add(pl_module.last_totals.by_bucket, step.step)
            for text in alarms:
                rank_zero_warn(text)
            for text in news:
                rank_zero_info(text)
        if pl_module.log_now:
            pl_module.log_dict(watch.take(step.step))

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._watch is not None:
            self._tell(trainer, self._watch, trainer.current_epoch)
            self._epoch = trainer.current_epoch + 1

    def _tell(self, trainer: Trainer, watch: LossWatch, epoch: int) -> None:
        words, rows = watch.end_epoch()
        rank_zero_info(f"loss in epoch {epoch}: {words}")
        if rows:
            log_table(trainer, "loss/bands", COLUMNS, rows)
            log_figure(trainer, "loss/bands_picture", band_picture(rows, watch.edges))

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self._epoch, "watch": self._watch.state_dict()} if self._watch else {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._loaded = state_dict
