"""What people are told when a checkpoint is there."""

import pytest

from dflash_lightning.checkpoint.redact import protect
from dflash_lightning.checkpoint.writing.announce import durable_line
from dflash_lightning.checkpoint.writing.events import Durable
from tests.checkpoint.saving import job


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("s3://bucket/run/step=8-1a2b3c4d", "s3://bucket/run/step=8-1a2b3c4d"),
        ("s3://me:word@bucket/run", "s3://***@bucket/run"),
        ("s3://bucket/hunter2hunter2/step=8", "s3://bucket/***/step=8"),
    ],
)
def test_one_line_without_secrets(uri, shown):
    protect(["hunter2hunter2"])
    event = Durable(
        job=job(8, kind="best"), manifest_key="", uri=uri, seconds=12.94, num_bytes=1_204_312_000, retries=0
    )
    several = "step 8 (best) is durable (1,204.3 MB on each of 4 ranks, 12.9 s after"
    assert durable_line(event, ranks=4).startswith(several)
    assert durable_line(event) == f"step 8 (best) is durable (1,204.3 MB, 12.9 s after the copy): {shown}"
