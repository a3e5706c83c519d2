"""The laws of `ObjectStore`, the same for memory, a directory, S3, and a scripted store without a script."""

import gc
import threading
import zlib

import pytest

from dflash_lightning.checkpoint.stores import ObjectStore, StoreError, Upload, open_store
from dflash_lightning.checkpoint.stores.faults import FaultyStore
from dflash_lightning.checkpoint.stores.local import LocalStore
from dflash_lightning.checkpoint.stores.memory import MemoryStore
from dflash_lightning.checkpoint.stores.settings import SMALLEST_PART

LARGE = bytes(range(251)) * (SMALLEST_PART // 251 + 1)  # two parts on S3
S3 = pytest.param("s3", marks=pytest.mark.slow)


@pytest.fixture(params=["memory", "directory", "scripted", S3])
def store(request, tmp_path):
    """A store, seen through a prefix of its own."""
    if request.param == "memory":
        return MemoryStore()
    if request.param == "directory":
        return LocalStore(tmp_path / "root")
    if request.param == "scripted":
        return FaultyStore(MemoryStore())
    uri, settings = request.getfixturevalue("s3_uri"), request.getfixturevalue("s3_settings")
    return Below(*open_store(uri, settings))


class Below:
    """The part of a bucket under a prefix, as a store: tests share the bucket but no keys."""

    def __init__(self, store: ObjectStore, prefix: str) -> None:
        self.store, self.prefix = store, f"{prefix}/"

    def put(self, key, data, *, only_if_absent=False):
        self.store.put(self.prefix + key, data, only_if_absent=only_if_absent)

    def open_upload(self, key, *, size_hint) -> Upload:
        return self.store.open_upload(self.prefix + key, size_hint=size_hint)

    def read(self, key, start=0, stop=None):
        return self.store.read(self.prefix + key, start, stop)

    def head(self, key):
        return self.store.head(self.prefix + key)

    def list(self, prefix):
        return self.store.list(self.prefix + prefix)

    def delete(self, keys):
        return self.store.delete([self.prefix + key for key in keys])

    def list_uploads(self, prefix):
        return self.store.list_uploads(self.prefix + prefix)

    def abort_upload(self, pending):
        self.store.abort_upload(pending)

    def uri(self, key):
        return self.store.uri(self.prefix + key)

    def quick(self):
        return self.store.quick()


def keys(store, prefix=""):
    below = getattr(store, "prefix", "")
    return [facts.key.removeprefix(below) for facts in store.list(prefix)]


def save(store, key, data, size_hint=0):
    upload = store.open_upload(key, size_hint=size_hint)
    for start in range(0, len(data), 1_000_003):
        upload.write(memoryview(data)[start : start + 1_000_003])
    upload.flush()
    return upload.finish()


def test_it_is_an_object_store(store):
    assert isinstance(store, ObjectStore)
    assert isinstance(store.quick(), ObjectStore)


def test_what_was_put_is_read(store):
    store.put("a/b", b"first")
    store.put("a/b", b"second")
    assert store.read("a/b") == b"second"
    facts = store.head("a/b")
    assert facts is not None
    assert facts.size == 6
    assert facts.crc32 in (None, f"{zlib.crc32(b'second'):08x}")


@pytest.mark.parametrize(
    ("start", "stop", "expected"),
    [
        (0, None, b"0123456789"),
        (3, None, b"3456789"),
        (0, 4, b"0123"),
        (3, 4, b"3"),
        (8, 99, b"89"),
        (10, None, b""),
        (99, 100, b""),
        (4, 4, b""),
        (5, 4, b""),
    ],
)
def test_a_range_is_cut_as_python_cuts(store, start, stop, expected):
    store.put("digits", b"0123456789")
    assert store.read("digits", start, stop) == expected


def test_an_empty_object_is_an_object(store):
    store.put("empty", b"")
    assert save(store, "streamed", b"").size == 0
    assert store.read("empty") == store.read("streamed") == b""
    assert store.head("empty").size == 0


@pytest.mark.parametrize("span", [(0, None), (2, 5), (2, 2)])
def test_what_is_not_there_is_missing(store, span):
    assert store.head("nothing") is None
    with pytest.raises(StoreError, match="there is no .*nothing|nothing.*no such object") as caught:
        store.read("nothing", *span)
    assert caught.value.kind == "missing"


def test_only_if_absent_refuses_what_is_there(store):
    store.put("owner", b"mine", only_if_absent=True)
    with pytest.raises(StoreError, match="there already|exists already") as caught:
        store.put("owner", b"yours", only_if_absent=True)
    assert caught.value.kind == "conflict"
    assert store.read("owner") == b"mine"


def test_of_many_writers_at_once_one_wins(store):
    winners, losers, start = [], [], threading.Barrier(6)

    def write(name):
        start.wait()
        try:
            store.put("owner", name, only_if_absent=True)
        except StoreError as error:
            losers.append(error.kind)
        else:
            winners.append(name)

    threads = [threading.Thread(target=write, args=(b"%d" % n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert winners == [store.read("owner")]
    assert losers == ["conflict"] * 5


def test_listing_is_in_key_order_and_by_the_first_characters(store):
    names = ["data/b", "data-x", "data/a", "data/sub/c", "last.json", "data/B", "dat"]
    for name in names:
        store.put(name, name.encode())
    assert keys(store) == sorted(names)
    assert keys(store, "data/") == ["data/B", "data/a", "data/b", "data/sub/c"]
    assert keys(store, "data") == ["data-x", "data/B", "data/a", "data/b", "data/sub/c"]
    assert keys(store, "nothing/") == []
    assert [facts.size for facts in store.list("data/")] == [6, 6, 6, 10]


def test_deleting_says_nothing_of_what_is_gone(store):
    store.put("a", b"1")
    store.put("b/c", b"2")
    assert store.delete(["a", "never/there", "b/c"]) == {}
    assert keys(store) == []
    assert store.delete([]) == {}
    store.put("b/c", b"3")  # a folder that went away with its last file is no obstacle
    assert store.read("b/c") == b"3"


def test_an_upload_is_there_when_it_is_finished_and_not_before(store):
    upload = store.open_upload("big", size_hint=len(LARGE))
    assert upload.write(LARGE) == len(LARGE)
    upload.flush()
    assert store.head("big") is None
    assert keys(store) == []
    facts = upload.finish()
    assert (facts.size, facts.crc32) == (len(LARGE), f"{zlib.crc32(LARGE):08x}")
    assert store.read("big") == LARGE
    assert store.head("big").crc32 in (None, facts.crc32)
    assert list(store.list_uploads("")) == []


def test_pieces_of_any_size_make_the_same_object(store):
    save(store, "pieces", LARGE, size_hint=10)
    assert store.read("pieces") == LARGE


def test_the_buffer_handed_over_may_be_used_again(store):
    buffer = bytearray(b"first ")
    upload = store.open_upload("twice", size_hint=0)
    upload.write(buffer)
    buffer[:] = b"second"
    upload.write(buffer)
    upload.finish()
    assert store.read("twice") == b"first second"


def test_an_aborted_upload_leaves_nothing_and_the_old_object_stays(store):
    store.put("good", b"good")
    upload = store.open_upload("good", size_hint=len(LARGE))
    upload.write(LARGE)
    upload.abort()
    upload.abort()
    assert store.read("good") == b"good"
    assert list(store.list_uploads("")) == []
    with pytest.raises(StoreError):
        upload.finish()
    assert store.read("good") == b"good"


def test_a_forgotten_upload_is_not_committed(store):
    """An exception in the middle of a save, then garbage collection: the good object must survive."""
    store.put("last.ckpt", b"good")
    upload = store.open_upload("last.ckpt", size_hint=len(LARGE))
    upload.write(LARGE[: len(LARGE) // 2])
    del upload
    gc.collect()
    assert store.read("last.ckpt") == b"good"


def test_pending_uploads_are_listed_and_freed_one_by_one(store):
    first = store.open_upload("runs/a", size_hint=0)
    second = store.open_upload("runs/b", size_hint=0)
    other = store.open_upload("elsewhere/c", size_hint=0)
    found = store.list_uploads("runs/")
    assert {pending.upload_id for pending in found} == {
        first.pending().upload_id,
        second.pending().upload_id,
    }
    assert all(abs(pending.started - first.pending().started) < 60 for pending in found)
    store.abort_upload(first.pending())
    store.abort_upload(first.pending())
    assert [pending.upload_id for pending in store.list_uploads("runs/")] == [second.pending().upload_id]
    second.write(b"still alive")
    assert second.finish().size == 11
    other.abort()
    assert list(store.list_uploads("")) == []


def test_an_upload_freed_by_someone_else_cannot_be_finished(store):
    upload = store.open_upload("a", size_hint=0)
    upload.write(b"data")
    store.abort_upload(upload.pending())
    with pytest.raises(StoreError):
        upload.finish()
    assert store.head("a") is None
    upload.abort()


@pytest.mark.parametrize("key", ["", "/a", "a/", "a//b", "../a", "a/./b", "a\\b", "a\nb", "x" * 1025])
def test_keys_that_a_directory_and_a_bucket_read_differently_are_refused(store, key):
    store = getattr(store, "store", store)
    for call in (
        lambda: store.put(key, b""),
        lambda: store.read(key),
        lambda: store.head(key),
        lambda: store.open_upload(key, size_hint=0),
        lambda: store.delete([key]),
    ):
        with pytest.raises(ValueError, match="is not usable|S3 allows 1024"):
            call()


def test_torch_saves_into_an_upload(store):
    torch = pytest.importorskip("torch")
    upload = store.open_upload("step=1.ckpt", size_hint=0)
    torch.save({"weight": torch.arange(7.0)}, upload)
    upload.finish()
    import io

    loaded = torch.load(io.BytesIO(store.read("step=1.ckpt")), weights_only=True)
    assert loaded["weight"].tolist() == [0, 1, 2, 3, 4, 5, 6]
