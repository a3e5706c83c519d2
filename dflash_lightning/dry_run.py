"""`fit --dry_run true`: the real trainer, model, data and launch, one step for each bucket, nothing written.

law   whatever could write is taken out of the run; all that computes stays in, callbacks included
"""

from lightning import LightningDataModule, LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.cli import SaveConfigCallback
from lightning.pytorch.loggers.logger import DummyLogger

from dflash_lightning.callbacks.micro_batches import MicroBatches
from dflash_lightning.callbacks.s3_checkpoint import S3Checkpoint
from dflash_lightning.data.datamodule import DFlashDataModule
from dflash_lightning.training.start.dry_run import DryRun


def rehearse(trainer: Trainer, module: LightningModule, data: LightningDataModule) -> None:
    """Fit what `fit` would, on the heaviest batch of each bucket, then one validation batch.

    Raises: whatever a real start would.
    """
    assert isinstance(data, DFlashDataModule)
    callbacks = trainer.callbacks  # type: ignore[attr-defined]  # set by a connector
    stores = [(c.uri, c.settings) for c in callbacks if isinstance(c, S3Checkpoint)]
    for callback in callbacks:
        if isinstance(callback, SaveConfigCallback):
            callback.already_saved = True  # it still compares the settings of all ranks
    kept = [c for c in callbacks if not isinstance(c, (Checkpoint, MicroBatches))]
    trainer.callbacks = [*kept, DryRun(stores, accumulate=trainer.accumulate_grad_batches)]  # type: ignore[attr-defined]
    trainer.loggers = [DummyLogger()]
    trainer.accumulate_grad_batches = 1  # more of it needs no more memory
    trainer.fit_loop.max_epochs = 1
    trainer.fit_loop.epoch_loop.max_steps = -1
    trainer.limit_val_batches = 1
    trainer.val_check_interval = 1.0
    trainer.check_val_every_n_epoch = 1
    data.rehearse = True
    trainer.fit(module, data)
