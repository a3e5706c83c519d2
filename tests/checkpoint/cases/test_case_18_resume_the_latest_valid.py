"""Case 18: the newest that verifies, and each one that does not is said; finding nothing is never silent.

All addresses, and every kind of damage by itself: tests/checkpoint/resuming/test_resume.py.
"""

import threading

import pytest

from dflash_lightning.checkpoint.layout import data_key, shard_key
from dflash_lightning.checkpoint.listing import list_manifests
from dflash_lightning.checkpoint.publishing.publish import commit, make_manifest
from dflash_lightning.checkpoint.publishing.upload import upload_data
from dflash_lightning.checkpoint.resuming.fetch import fetch, fetch_checkpoint
from dflash_lightning.checkpoint.resuming.resume import NothingFound, resolve
from dflash_lightning.checkpoint.stores import StoreSettings, open_store, s3_answers
from dflash_lightning.checkpoint.stores.keys import join_key
from tests.checkpoint.saving import content, job, keep, save, writes


def save_shards(store, prefix, step):
    name = f"step={step}-{step:08x}"
    files = tuple(upload_data(store, prefix, shard_key(name, rank), writes(rank)) for rank in (0, 1))
    commit(store, prefix, make_manifest(job(step), name, files, list_manifests(store, prefix)))
    return name


def damage_all_but_the_first(store, prefix):
    """Steps 1 to 5, of which only the first is whole."""
    whole, cut, flipped = (save(store, step, prefix=prefix, retention=keep()).manifest for step in (1, 2, 3))
    data = store.read(join_key(prefix, data_key(cut.name)))
    store.put(join_key(prefix, data_key(cut.name)), data[:-1])
    store.put(join_key(prefix, data_key(flipped.name)), b"?" + data[1:])
    store.delete([join_key(prefix, shard_key(save_shards(store, prefix, 4), 1))])
    garbage = save(store, 5, prefix=prefix, retention=keep()).manifest
    store.put(join_key(prefix, garbage.key), b"<html>")
    return whole


def require_the_first(uri, settings, folder):
    skipped = []
    found = fetch_checkpoint(uri, settings, folder, on_skip=lambda *what: skipped.append(what))
    assert found.path.read_bytes() == content(1)
    assert [address.rpartition("step=")[2].split("-")[0].lstrip("0") for address, _ in skipped] == [*"5432"]
    texts = ["JSON", "rank=1.ckpt is missing", "crc32", "bytes, its manifest says"]
    for (_, reason), text in zip(skipped, texts, strict=True):
        assert text in reason


def test_case_18_in_a_folder(tmp_path):
    store, _ = open_store(str(tmp_path / "store"), StoreSettings())
    damage_all_but_the_first(store, "")
    require_the_first(str(tmp_path / "store"), StoreSettings(), tmp_path / "here")


@pytest.mark.slow
def test_case_18_in_a_bucket(tmp_path, s3_uri, s3_settings):
    store, prefix = open_store(s3_uri, s3_settings)
    whole = damage_all_but_the_first(store, prefix)
    require_the_first(s3_uri, s3_settings, tmp_path)
    for which in ("last", "newest", "step=1", whole.name):
        assert resolve(store, prefix, which) == whole


@pytest.mark.slow
def test_case_18_an_empty_prefix_says_so(s3_uri, s3_settings, tmp_path):
    with pytest.raises(NothingFound, match="nothing lies there; check the address"):
        fetch(s3_uri, s3_settings, tmp_path)


@pytest.mark.slow
def test_case_18_more_manifests_than_a_page_of_a_bucket(s3_uri, s3_settings, monkeypatch):
    monkeypatch.setattr(s3_answers, "PAGE_ENTRIES", 40)  # else 1,000, as in test_resume.py without a server
    store, prefix = open_store(s3_uri, s3_settings)
    first = save(store, 1, prefix=prefix, retention=keep()).manifest
    text = store.read(join_key(prefix, first.key))
    later = [join_key(prefix, f"manifests/step={step:012d}-{step:08x}.json") for step in range(2, 100)]
    for key in later:  # copies under other names: each is listed, and none can be used
        store.put(key, text)
    listing = list_manifests(store, prefix)
    assert (len(listing.manifests), len(listing.broken)) == (1, len(later))
    assert resolve(store, prefix, on_skip=lambda *what: None) == first


@pytest.mark.slow
def test_case_18_one_download_for_all_processes_of_a_node(proxy, s3_uri, s3_settings, tmp_path):
    store, prefix = open_store(s3_uri, s3_settings)
    save(store, 1, prefix=prefix)
    found = []
    ranks = [
        threading.Thread(target=lambda: found.append(fetch(s3_uri, proxy.settings(), tmp_path)))
        for _ in range(8)
    ]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    assert len(found) == 8
    assert len(set(found)) == 1
    assert proxy.count("GET", ".ckpt") == 1
