"""A checkpoint as a W&B artifact: a reference to where it lies, never its bytes."""

import logging
from collections.abc import Sequence

from lightning.pytorch.loggers import Logger, WandbLogger

from dflash_lightning.checkpoint.writing.events import Durable

log = logging.getLogger(__name__)


def refer_to_checkpoint(loggers: Sequence[Logger], event: Durable) -> None:
    """Only of what is durable, and only of a bucket: a folder of this machine means nothing to others."""
    if not event.uri.startswith("s3://"):
        return
    for logger in loggers:
        if isinstance(logger, WandbLogger):
            import wandb

            metadata = {"step": event.job.step, "kind": event.job.kind, **event.job.metrics}
            artifact = wandb.Artifact(f"checkpoint-{event.job.run_id}", type="model", metadata=metadata)
            # checksum=True would ask the bucket, on the training thread and with other settings.
            artifact.add_reference(event.uri, name="checkpoint", checksum=False)
            logger.experiment.log_artifact(artifact)
