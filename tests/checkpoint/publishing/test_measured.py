"""Checksums depend on the bytes, not on how they were cut into pieces."""

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_lightning.checkpoint.manifest import DataFile, Part
from dflash_lightning.checkpoint.publishing.measured import MeasuredFile
from dflash_lightning.checkpoint.stores.memory import MemoryStore

PART = 5


def measured_by_hand(data):
    pieces = [(at, data[at : at + PART]) for at in range(0, len(data), PART)]
    parts = tuple(Part(at, len(piece), f"{zlib.crc32(piece):08x}") for at, piece in pieces)
    return DataFile("data/x", len(data), f"{zlib.crc32(data):08x}", parts)


@given(st.lists(st.binary(max_size=12), max_size=6))
def test_pieces_of_any_size(pieces):
    store = MemoryStore()
    upload = store.open_upload("data/x", size_hint=0)
    file = MeasuredFile(upload, part_bytes=PART)
    for piece in pieces:
        assert file.write(memoryview(piece)) == len(piece)
    upload.finish()
    data = b"".join(pieces)
    assert store.read("data/x") == data
    assert file.measured("data/x") == measured_by_hand(data)


@pytest.mark.parametrize("data", [bytearray(b"abcdef"), memoryview(b"abcdefgh").cast("I")])
def test_pieces_of_any_kind(data):
    file = MeasuredFile(MemoryStore().open_upload("x", size_hint=0), part_bytes=PART)
    assert file.write(data) == len(bytes(data))
    assert file.measured("x").crc32 == f"{zlib.crc32(bytes(data)):08x}"
