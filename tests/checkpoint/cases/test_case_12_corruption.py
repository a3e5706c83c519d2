"""Case 12: bits that change on the way up, on the way down, and at rest."""

import zlib
from functools import partial

import pytest

from dflash_lightning.checkpoint.publishing.measured import PART_BYTES, MeasuredFile
from dflash_lightning.checkpoint.publishing.publish import publish
from dflash_lightning.checkpoint.resuming.fetch import fetch
from dflash_lightning.checkpoint.resuming.resume import resolve
from dflash_lightning.checkpoint.stores import StoreError, open_store
from dflash_lightning.checkpoint.stores.fault_script import Fault
from dflash_lightning.checkpoint.stores.keys import join_key
from dflash_lightning.checkpoint.stores.local import LocalStore
from tests.checkpoint.over_s3 import LARGE, fails, upload_to
from tests.checkpoint.resuming.test_fetch import URI, files, get, reads, stored
from tests.checkpoint.saving import content, job, keep, save


@pytest.mark.slow
def test_case_12_a_bit_that_changes_on_the_way_up_is_sent_again(proxy, proxied, direct):
    store, prefix = proxied
    put = proxy.add("flip_up", method="PUT", path="/small")
    part = proxy.add("flip_up", method="PUT", path="/large")
    store.put(f"{prefix}/small", b"data" * 100)
    facts = upload_to(store, f"{prefix}/large")
    assert (put.seen, part.seen) == (1, 1)
    assert direct.read(f"{prefix}/small") == b"data" * 100
    assert zlib.crc32(direct.read(f"{prefix}/large")) == int(facts.crc32, 16) == zlib.crc32(LARGE)


@pytest.mark.slow
def test_case_12_bits_that_keep_changing_are_an_error(proxy, proxied, direct, errors):
    store, prefix = proxied
    proxy.add("flip_up", method="PUT", times=None)
    assert "bytes changed on their way" in fails(
        lambda: store.put(f"{prefix}/a", b"x" * 99), errors, "corrupt"
    )
    fails(lambda: upload_to(store, f"{prefix}/b"), errors, "corrupt")
    assert list(direct.list(prefix)) == []
    assert list(direct.list_uploads(prefix)) == []


@pytest.mark.slow
def test_case_12_a_whole_object_that_changes_on_the_way_down_is_read_again(proxy, proxied, errors):
    store, prefix = proxied
    store.put(f"{prefix}/a", b"data" * 100)
    upload_to(store, f"{prefix}/large")
    proxy.add("flip_down", method="GET", times=2)
    assert store.read(f"{prefix}/a") == b"data" * 100
    assert store.read(f"{prefix}/large") == LARGE
    proxy.add("flip_down", method="GET", times=None)
    fails(lambda: store.read(f"{prefix}/a"), errors, "corrupt")
    fails(lambda: store.read(f"{prefix}/large"), errors, "corrupt")


def test_case_12_a_bit_flipped_on_the_way_down_is_read_again(tmp_path):
    store = stored(Fault("read", does="flip", key="/data/", times=2))
    assert get(tmp_path).read_bytes() == content(8)
    assert len(reads(store)) == 3


def test_case_12_what_stays_corrupt_falls_back_to_the_one_before_loudly(tmp_path, caplog):
    stored(Fault("read", does="flip", key="/data/step=8", times=99))
    assert get(tmp_path).read_bytes() == content(4)
    assert "skipping memory://fetch/runs/a/step=8-" in caplog.text
    assert "differs from its manifest in bytes 0 to 3,000, 3 times over" in caplog.text
    assert all(name.startswith("step=4-") for name in files(tmp_path))


def test_case_12_a_step_that_was_asked_for_is_not_replaced_by_another(tmp_path):
    stored(Fault("read", does="flip", key="/data/step=8", times=99))
    skipped = []
    with pytest.raises(StoreError, match="no checkpoint at .*step=8 can be used") as caught:
        get(tmp_path, f"{URI}/step=8", on_skip=lambda uri, reason: skipped.append(uri))
    assert caught.value.kind == "corrupt"
    assert len(skipped) == 1
    assert files(tmp_path) == []


def test_case_12_at_rest_in_a_folder(tmp_path):
    store = LocalStore(tmp_path / "store")
    for step in (4, 8):
        save(store, step, prefix="", retention=keep())
    data = next((tmp_path / "store" / "data").glob("step=8-*"))
    data.write_bytes(data.read_bytes()[:-1] + b"?")  # as long as before
    skipped = []
    path = get(tmp_path / "here", str(store.root), on_skip=lambda uri, reason: skipped.append(reason))
    assert path.read_bytes() == content(4)
    assert "does not have the crc32" in skipped[0]


@pytest.mark.slow
@pytest.mark.parametrize("damage", [None, "flip"])
def test_case_12_on_a_real_server(damage, tmp_path, s3_uri, s3_settings, caplog):
    store, prefix = open_store(s3_uri, s3_settings)
    size = PART_BYTES + 5
    for step in (4, 8):
        data = content(step, size)
        publish(store, prefix, job(step, retention=keep()), partial(MeasuredFile.write, data=data))
    key = resolve(store, prefix).files[0].key
    if damage is not None:
        store.put(join_key(prefix, key), b"?" + data[1:])
    path = fetch(s3_uri, s3_settings, tmp_path)
    assert path.read_bytes() == content(8 if damage is None else 4, size)
    assert ("skipping" in caplog.text) == (damage is not None)


@pytest.mark.slow
@pytest.mark.parametrize(("times", "step"), [(2, 8), (None, 4)])
def test_case_12_flips_between_here_and_a_real_server(times, step, tmp_path, proxy, s3_uri, caplog):
    store, prefix = open_store(s3_uri, proxy.settings())
    save(store, 4, prefix=prefix, retention=keep())
    published = save(store, 8, prefix=prefix, retention=keep())
    rule = proxy.add("flip_down", method="GET", path=published.manifest.name[-8:] + ".ckpt", times=times)
    assert fetch(s3_uri, proxy.settings(), tmp_path).read_bytes() == content(step)
    assert rule.seen >= 2
    assert ("skipping" in caplog.text) == (step == 4)
