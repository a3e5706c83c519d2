"""Case 2: pieces of uploads are invisible; a failure takes its own away, the next start those of a crash."""

import subprocess
import sys
import time

import pytest

from dflash_lightning.checkpoint.claiming.claim import claim
from dflash_lightning.checkpoint.keeping.removal import clean_leftovers
from dflash_lightning.checkpoint.stores import open_store
from dflash_lightning.checkpoint.stores.memory import MemoryStore
from tests.checkpoint.over_s3 import fails, upload_to
from tests.checkpoint.saving import PREFIX, save, steps


def test_case_02_leftovers_of_a_crash_go_at_the_next_start():
    store = MemoryStore()
    kept = save(store, 4)
    store.open_upload(f"{PREFIX}/data/step=6-0000000a.ckpt", size_hint=0)
    store.put(f"{PREFIX}/data/step=7-0000000b.ckpt", b"no manifest")
    store.put(f"{PREFIX}/data/step=8-0000000c/rank=1.ckpt", b"a shard")
    store.put(f"{PREFIX}/probe/abc", b"probe")
    store.open_upload("runs/ab/data/step=6-0000000a.ckpt", size_hint=0)  # another run's
    store.put("runs/ab/data/step=6-0000000d.ckpt", b"another run's")
    store.put(f"{PREFIX}/data/notes.txt", b"nobody knows")
    owner = claim(store, PREFIX, "a", now=1000.0, stale_after_s=300.0, sleep=lambda seconds: None)
    later = 10 + max(store.modified.values())
    assert clean_leftovers(store, PREFIX, owner, older_than_s=3600.0, now=later) == []
    gone = clean_leftovers(store, PREFIX, owner, older_than_s=5.0, now=later)
    assert [text.split("memory://memory/")[1] for text in gone] == [
        f"{PREFIX}/data/step=6-0000000a.ckpt",
        f"{PREFIX}/data/step=7-0000000b.ckpt",
        f"{PREFIX}/data/step=8-0000000c/rank=1.ckpt",
        f"{PREFIX}/probe/abc",
    ]
    assert [pending.key for pending in store.pending.values()] == ["runs/ab/data/step=6-0000000a.ckpt"]
    assert steps(store) == [4]
    assert f"{PREFIX}/{kept.manifest.files[0].key}" in store.objects
    assert f"{PREFIX}/data/notes.txt" in store.objects


@pytest.mark.slow
def test_case_02_a_failed_upload_takes_its_parts_away(proxy, proxied, direct, errors):
    store, prefix = proxied
    proxy.add("answer", method="PUT", query="partNumber=2", status=403, code="AccessDenied", times=None)
    fails(lambda: upload_to(store, f"{prefix}/a"), errors, "denied")
    assert direct.head(f"{prefix}/a") is None
    assert list(direct.list_uploads(prefix)) == []


KILLED = """
import os, sys
from dflash_lightning.checkpoint.stores import StoreSettings, open_store
store, prefix = open_store(sys.argv[1], StoreSettings(**eval(sys.argv[2])))
upload = store.open_upload(f"{prefix}/data/step=6-0000000a.ckpt", size_hint=0)
upload.write(bytes(6 << 20))
os._exit(137)
"""


@pytest.mark.slow
def test_case_02_parts_of_a_killed_process_go_at_the_next_start_and_those_of_a_live_run_stay(
    weed, s3_env, s3_uri
):
    settings = {"endpoint_url": weed.endpoint, "path_style": True}
    for uri in (s3_uri, f"{s3_uri}-of-another-run"):
        ended = subprocess.run([sys.executable, "-c", KILLED, uri, repr(settings)])
        assert ended.returncode == 137
    store, prefix = open_store(s3_uri, weed.settings())
    (left,) = store.list_uploads(f"{prefix}/")
    assert left.key == f"{prefix}/data/step=6-0000000a.ckpt"
    assert list(store.list(prefix)) == []  # invisible
    now = time.time()
    owner = claim(store, prefix, "a", now=now, stale_after_s=300.0)
    assert clean_leftovers(store, prefix, owner, older_than_s=3600.0) == []
    gone = clean_leftovers(store, prefix, owner, older_than_s=3600.0, now=now + 3700.0)
    assert gone == [f"the pending upload of {s3_uri}/data/step=6-0000000a.ckpt"]
    assert list(store.list_uploads(f"{prefix}/")) == []
    assert len(store.list_uploads(f"{prefix}-of-another-run/")) == 1
