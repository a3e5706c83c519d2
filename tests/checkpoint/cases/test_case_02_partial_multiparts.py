"""Case 2: pieces of uploads are invisible; a failure takes its own away, the next start those of a crash."""

import pytest

from dflash_lightning.checkpoint.claim import claim
from dflash_lightning.checkpoint.removal import clean_leftovers
from dflash_lightning.checkpoint.stores import open_store
from dflash_lightning.checkpoint.stores.memory import MemoryStore
from tests.checkpoint.over_s3 import LARGE
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
def test_case_02_what_a_killed_upload_leaves_is_listed_and_freed(weed, s3_env, s3_uri, errors):
    store, prefix = open_store(s3_uri, weed.settings())
    upload = store.open_upload(f"{prefix}/a", size_hint=0)
    upload.write(LARGE)
    (left,) = store.list_uploads(prefix)
    assert left.key == f"{prefix}/a"
    store.abort_upload(left)
    assert list(store.list_uploads(prefix)) == []
    upload.abort()
