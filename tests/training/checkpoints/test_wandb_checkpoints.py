"""Checkpoints as references in W&B: what they say, and that nobody waits for them."""

import json
import threading

import pytest
import wandb
from lightning.pytorch.loggers import CSVLogger, WandbLogger

from dflash_lightning.checkpoint.job import SaveJob
from dflash_lightning.checkpoint.writing.events import Durable
from dflash_lightning.training.checkpoints.wandb_checkpoints import WandbReferences

pytestmark = pytest.mark.slow


def event(step, place="s3://bucket/run/step=8-1a2b3c4d"):
    job = SaveJob(step=step, epoch=0, kind="best", run_id="a1b2", metrics={"val/tau": 2.5})
    return Durable(job=job, manifest_key="", uri=place, seconds=1.0, num_bytes=8, retries=0)


@pytest.fixture
def logger(tmp_path):
    yield WandbLogger(save_dir=tmp_path, offline=True)
    wandb.finish()


def test_a_durable_checkpoint_is_a_reference(logger, tmp_path, monkeypatch):
    """Nothing is asked of the bucket, which does not exist."""
    seen = []
    monkeypatch.setattr(logger.experiment, "log_artifact", seen.append)
    references = WandbReferences([CSVLogger(tmp_path), logger])
    references.add(event(8))
    references.add(event(8, "/a/folder/step=8-1a2b3c4d"))
    references.close()
    (artifact,) = seen
    assert (artifact.name.split(":")[0], artifact.type) == ("checkpoint-a1b2", "model")
    assert artifact.metadata == {"step": 8, "kind": "best", "val/tau": 2.5}
    entries = json.loads(json.dumps(artifact.manifest.to_manifest_json()))["contents"]
    assert [entry["ref"] for entry in entries.values()] == ["s3://bucket/run/step=8-1a2b3c4d"]


def test_nobody_waits_for_wandb(logger, monkeypatch, caplog):
    """Its server takes the first reference, and does not answer to the second."""
    answers, asked, seen = threading.Event(), threading.Event(), []

    def log_artifact(artifact):
        seen.append((artifact.metadata["step"], threading.current_thread()))
        if len(seen) > 1:
            asked.set()
            answers.wait()

    monkeypatch.setattr(logger.experiment, "log_artifact", log_artifact)
    references = WandbReferences([logger], close_s=3.0)
    for step in (8, 16, 24):
        references.add(event(step))  # else this would not return
    assert asked.wait(60.0)
    closing = threading.Thread(target=references.close)
    closing.start()
    closing.join(60.0)
    assert not closing.is_alive()
    assert "W&B has taken no reference to step 16 (best), step 24 (best) within 3 s" in caplog.text
    answers.set()
    references._thread.join(60.0)
    assert [step for step, _ in seen] == [8, 16, 24]
    assert threading.main_thread() not in {thread for _, thread in seen}


def test_what_wandb_refuses_is_told_and_harms_nobody(logger, monkeypatch, caplog):
    seen = []

    def log_artifact(artifact):
        seen.append(artifact.metadata["step"])
        if len(seen) == 1:
            raise ValueError("already exists with type 'dataset'")

    monkeypatch.setattr(logger.experiment, "log_artifact", log_artifact)
    references = WandbReferences([logger], close_s=60.0)
    references.add(event(8))
    references.add(event(16))
    references.close()
    assert seen == [8, 16]
    assert "W&B takes no reference to step 8 (best): ValueError: already exists with type" in caplog.text
    assert "within" not in caplog.text


def test_without_a_reference_there_is_no_thread(logger, tmp_path):
    before = threading.active_count()
    references = WandbReferences([CSVLogger(tmp_path)])
    references.add(event(8))
    references.close()
    assert threading.active_count() == before
