"""One verified copy on this machine; a corrupt checkpoint falls back to the one before, loudly."""

import errno
import threading

import pytest

from dflash_lightning.checkpoint.publishing.measured import PART_BYTES
from dflash_lightning.checkpoint.publishing.publish import publish
from dflash_lightning.checkpoint.resuming import download
from dflash_lightning.checkpoint.resuming.fetch import FilesOfRank, fetch, fetch_checkpoint
from dflash_lightning.checkpoint.stores import StoreError, StoreSettings
from dflash_lightning.checkpoint.stores.fault_script import Fault
from dflash_lightning.checkpoint.stores.faults import FaultyStore
from dflash_lightning.checkpoint.stores.local import LocalStore
from dflash_lightning.checkpoint.stores.memory import MemoryStore, name_store
from tests.checkpoint.publishing.test_sharded import run_ranks, save_of
from tests.checkpoint.saving import PREFIX, content, job, keep, save

URI = f"memory://fetch/{PREFIX}"


def stored(*faults, steps=(4, 8)):
    """A store that memory://fetch means: whole checkpoints, then the faults."""
    inner = MemoryStore("fetch")
    for step in steps:
        save(inner, step, retention=keep())
    store = FaultyStore(inner, *faults)
    name_store("fetch", store)
    return store


def get(folder, uri=URI, **options):
    return fetch(uri, StoreSettings(), folder, **options)


def reads(store):
    return [event for event in store.events if event.operation == "read" and "/data/" in event.key]


def files(folder):
    return sorted(path.name for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock")


def test_it_is_what_was_saved(tmp_path):
    stored()
    seen = []
    path = get(tmp_path, on_progress=lambda done, total: seen.append((done, total)))
    assert path.read_bytes() == content(8)
    assert path.parent == tmp_path
    assert path.name.startswith("step=8-")
    assert seen[-1] == (3000, 3000)
    assert get(tmp_path, f"{URI}/step=4").read_bytes() == content(4)
    assert len(files(tmp_path)) == 2


def test_other_processes_get_exactly_the_same(tmp_path):
    store = stored()
    first = fetch_checkpoint(f"{URI}/last", StoreSettings(), tmp_path)
    save(store, 12, retention=keep())
    again = fetch_checkpoint(first.uri, StoreSettings(), tmp_path)
    assert again == first
    assert first.manifest.step == 8
    assert first.uri == f"{URI}/{first.manifest.name}"


def test_a_second_process_reuses_it_and_verifies_it_again(tmp_path):
    store = stored()
    path = get(tmp_path)
    assert len(reads(store)) == 1
    assert get(tmp_path) == path
    assert len(reads(store)) == 1
    path.write_bytes(b"?" + content(8)[1:])
    assert get(tmp_path).read_bytes() == content(8)
    assert len(reads(store)) == 2


def test_one_download_however_many_ask_at_once(tmp_path):
    store = stored(Fault("read", does="wait", seconds=0.2, key="/data/"))
    paths = []
    threads = [threading.Thread(target=lambda: paths.append(get(tmp_path))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(paths) == 4
    assert len(set(paths)) == 1
    assert len(reads(store)) == 1


def test_from_a_folder_on_the_same_disk_nothing_is_copied(tmp_path):
    store = LocalStore(tmp_path / "store")
    save(store, 8, prefix="")
    path = get(tmp_path / "here", f"{store.root}/last")
    assert path.samefile(next((tmp_path / "store" / "data").iterdir()))
    save(store, 12, prefix="")  # its retention deletes step 8
    assert path.read_bytes() == content(8)


def test_from_a_folder_on_another_disk(tmp_path, monkeypatch):
    def across(*_):
        raise OSError(errno.EXDEV, "another disk")

    store = LocalStore(tmp_path / "store")
    save(store, 8, prefix="")
    monkeypatch.setattr(download.os, "link", across)
    path = get(tmp_path / "here", str(store.root))
    assert path.read_bytes() == content(8)
    assert path.stat().st_nlink == 1


def test_a_plain_file_stays_what_it_is(tmp_path):
    path = tmp_path / "epoch=1.ckpt"
    path.write_bytes(b"of stock Lightning")
    assert get(tmp_path / "here", str(path)) == path
    assert not (tmp_path / "here").exists()
    with pytest.raises(FileNotFoundError, match="there is no checkpoint file .*gone.ckpt"):
        get(tmp_path, f"{tmp_path}/gone.ckpt")


def test_one_that_retention_took_during_the_download_is_looked_for_again(tmp_path):
    store = stored()
    published = []

    class Moving(FaultyStore):
        """A newer one is published, and the older ones go, when the first byte is asked for."""

        def read(self, key, start=0, stop=None):
            if "/data/" in key and not published:
                published.append(save(self.store, 12))
            return super().read(key, start, stop)

    name_store("fetch", Moving(store.store))
    assert get(tmp_path).read_bytes() == content(12)


def stored_in_shards():
    """What three ranks have stored together, and its name."""
    store, said = MemoryStore("fetch"), {}
    name = run_ranks([save_of(rank, store, said, world=3) for rank in range(3)])[1]
    store = FaultyStore(store)
    name_store("fetch", store)
    return store, name


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_of_as_many_shards_as_there_are_ranks_each_takes_its_own(rank, tmp_path):
    store, name = stored_in_shards()
    path = get(tmp_path, files=FilesOfRank(rank, 3))
    assert path.read_bytes() == content(rank)
    assert [event.key for event in reads(store)] == [f"{PREFIX}/data/{name}/rank={rank}.ckpt"]


def test_other_numbers_of_ranks_take_all(tmp_path):
    stored_in_shards()
    folder = get(tmp_path, files=FilesOfRank(1, 2))
    assert files(folder) == ["rank=0.ckpt", "rank=1.ckpt", "rank=2.ckpt"]
    stored()
    assert get(tmp_path, files=FilesOfRank(1, 2)).read_bytes() == content(8)


def test_when_none_will_do_the_error_says_why_each(tmp_path):
    stored(Fault("read", key="/data/", does="flip", times=100))
    with pytest.raises(StoreError, match="can be used: .*/data/step=8-.*; .*/data/step=4-") as caught:
        get(tmp_path)
    assert caught.value.kind == "corrupt"


def test_an_outage_does_not_look_like_corruption(tmp_path):
    stored(Fault("read", kind="endpoint", key="/data/"))
    with pytest.raises(StoreError, match="scripted: read of") as caught:
        get(tmp_path)
    assert caught.value.kind == "endpoint"
    assert files(tmp_path) == []


def test_a_download_that_was_killed_leaves_nothing_in_the_way(tmp_path):
    store = stored()
    path = get(tmp_path)
    path.unlink()
    (tmp_path / f".{path.name}.part").write_bytes(b"half")
    assert get(tmp_path).read_bytes() == content(8)
    assert files(tmp_path) == [path.name]
    assert len(reads(store)) == 2


@pytest.mark.parametrize(("size", "ranges"), [(0, 0), (PART_BYTES, 1), (2 * PART_BYTES + 1, 3)])
def test_sizes(tmp_path, size, ranges):
    store = stored(steps=())
    data = bytes(size)
    publish(store, PREFIX, job(1), lambda file: file.write(data))
    assert get(tmp_path).read_bytes() == data
    assert len(reads(store)) == ranges
