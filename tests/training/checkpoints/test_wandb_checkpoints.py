import json

import pytest
import wandb
from lightning.pytorch.loggers import WandbLogger

from dflash_lightning.checkpoint.job import SaveJob
from dflash_lightning.checkpoint.writing.events import Durable
from dflash_lightning.training.checkpoints.wandb_checkpoints import refer_to_checkpoint


@pytest.mark.slow
def test_a_durable_checkpoint_is_a_reference(tmp_path, monkeypatch):
    """Nothing is asked of the bucket, which does not exist."""
    seen = []
    logger = WandbLogger(save_dir=tmp_path, offline=True)
    monkeypatch.setattr(logger.experiment, "log_artifact", seen.append)
    job = SaveJob(step=8, epoch=0, kind="best", run_id="a1b2", metrics={"val/tau": 2.5})
    for place in ("s3://bucket/run/step=8-1a2b3c4d", "/a/folder/step=8-1a2b3c4d"):
        event = Durable(job=job, manifest_key="", uri=place, seconds=1.0, num_bytes=8, retries=0)
        refer_to_checkpoint([logger], event)
    wandb.finish()
    (artifact,) = seen
    assert (artifact.name.split(":")[0], artifact.type) == ("checkpoint-a1b2", "model")
    assert artifact.metadata == {"step": 8, "kind": "best", "val/tau": 2.5}
    entries = json.loads(json.dumps(artifact.manifest.to_manifest_json()))["contents"]
    assert [entry["ref"] for entry in entries.values()] == ["s3://bucket/run/step=8-1a2b3c4d"]
