"""Whole runs at log level DEBUG, trainer and uploader: nothing that they leave anywhere holds a secret."""

import re

import numpy as np
import pytest

from tests.ranks.forked import ForkedFit
from tests.ranks.stored_runs import assert_all_whole, stored_config
from tests.runs import make_store
from tests.s3.no_secrets import assert_no_secret
from tests.s3.server import credentials
from tests.wandb_file import history, run_files

pytestmark = pytest.mark.slow

LENGTHS = np.random.default_rng(5).integers(6, 33, 44).tolist()
TOKEN = "FwoGZXIvYXdzEXAMPLEsessiontoken0123456789abcdef"
LOUD = """import logging
logging.basicConfig(level=logging.DEBUG)
for name in ("boto3", "botocore", "s3transfer", "urllib3"):
    logging.getLogger(name).setLevel(logging.DEBUG)
"""
"""What every Python process of a run executes first."""


@pytest.fixture
def fit(tmp_path, toy_target):
    store = make_store(tmp_path / "store", toy_target, LENGTHS, held_out=[10, 20])
    (tmp_path / "python").mkdir()
    (tmp_path / "python" / "sitecustomize.py").write_text(LOUD)

    def start(uri, settings, environment, world=1, max_steps=12):
        saves = {"uri": uri, "settings": settings, "every_n_steps": 1, "deadline_s": 60.0}
        folder = tmp_path / "run"
        values = stored_config(
            folder, toy_target, store, saves=saves, watched={"delay": 0.2}, max_steps=max_steps, max_epochs=-1
        )
        logger = {"project": "dflash", "save_dir": str(folder), "offline": True}
        values["trainer"]["logger"] = [
            values["trainer"]["logger"],
            {"class_path": "WandbLogger", "init_args": logger},
        ]
        loud = {"PYTHONPATH": str(tmp_path / "python"), "DFLASH_TRACEBACK": "1", "WANDB_SILENT": "true"}
        return ForkedFit(folder, values, environment | loud, world=world, debug=True)

    return start


def left_by(run, weed, uri):
    """Text of every file of the run and of every object below its prefix."""
    files = [path for path in run.folder.rglob("*") if path.is_file()]
    client, prefix = weed.client(), uri.removeprefix(f"s3://{weed.bucket}/")
    listed = client.list_objects_v2(Bucket=weed.bucket, Prefix=prefix).get("Contents", [])
    bodies = [client.get_object(Bucket=weed.bucket, Key=found["Key"])["Body"].read() for found in listed]
    texts = [path.read_bytes() for path in files] + bodies
    names = [str(path.relative_to(run.folder)) for path in files] + [found["Key"] for found in listed]
    return dict(zip(names, (text.decode("latin-1") for text in texts), strict=True))


def assert_clean(texts, secrets):
    assert_no_secret(texts.values(), secrets)
    for name in texts:  # the check reads each of them
        with pytest.raises(AssertionError, match="of the secrets in use"):
            assert_no_secret((texts | {name: texts[name] + secrets[-1]}).values(), secrets)


def test_a_run_with_faults(fit, weed, s3_env, proxy, s3_uri):
    proxy.add("answer", path="/data/", method="PUT", times=3)
    proxy.add("flip_up", path="/data/", method="PUT")
    proxy.add("answer", path="/manifests/", method="PUT", status=400, code="ExpiredToken")
    with fit(s3_uri, proxy.settings(), weed.environment) as run:
        assert run.finish() == [0], run.output[-3000:]
    assert_all_whole(s3_uri, proxy.settings())
    texts = left_by(run, weed, s3_uri)
    (wandb_file,) = run_files(run.folder)
    assert history(wandb_file)
    for part in ("config.yaml", "metrics.csv", ".wandb", "output-", "manifests/", "data/", "last.json"):
        assert any(part in name for name in texts), part
    assert re.search(r"DEBUG:botocore.*/owner\.json", run.output)  # the trainer is as loud as it can be ...
    assert re.search(r"DEBUG:botocore.*/data/step=", run.output)  # ... and so is the uploader
    assert "Authorization" in run.output
    assert_clean(texts, weed.secrets)


def test_a_right_that_is_taken_away(fit, weed, s3_env, proxy, s3_uri):
    """The exception with all its causes is printed."""
    with fit(s3_uri, proxy.settings(), weed.environment, max_steps=2000) as run:
        run.wait_for_step(2)
        proxy.add("answer", path="/data/", method="PUT", times=None, status=403, code="AccessDenied")
        assert run.finish() == [1], run.output[-3000:]
    assert "CheckpointsLost: checkpoints can no longer be stored" in run.output
    assert_clean(left_by(run, weed, s3_uri), weed.secrets)


@pytest.mark.parametrize("wrong", ["key", "token"])
def test_credentials_that_the_server_refuses(wrong, fit, weed, s3_env, s3_settings, s3_uri):
    """On two ranks: both say why."""
    used = credentials("wrong") if wrong == "key" else weed.environment | {"AWS_SESSION_TOKEN": TOKEN}
    with fit(s3_uri, s3_settings, used, world=2) as run:
        assert run.finish() == [1, 1], run.output[-3000:]
    assert run.output.count("checkpoints cannot be kept at") >= 2
    secrets = [used["AWS_ACCESS_KEY_ID"], used["AWS_SECRET_ACCESS_KEY"], TOKEN]
    assert_clean(left_by(run, weed, s3_uri), secrets)
