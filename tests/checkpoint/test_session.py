"""What a session counts of its saves. What it stores: writing/, publishing/; whole runs: tests/callbacks."""

import threading

import torch

from dflash_lightning.checkpoint.session import Memory, Session
from dflash_lightning.checkpoint.stores.local import LocalStore
from dflash_lightning.checkpoint.stores.settings import StoreSettings
from tests.checkpoint.saving import job


def test_saves_without_a_place_are_refused_and_counted(tmp_path, monkeypatch):
    """One snapshot is on its way, another must stay: of two there is none left."""
    begun, go_on, upload = threading.Event(), threading.Event(), LocalStore.open_upload

    def hang(self, key, *, size_hint):
        begun.set()
        go_on.wait()
        return upload(self, key, size_hint=size_hint)

    session = Session(str(tmp_path), StoreSettings(), "ours", Memory(arenas=2, process=False))
    monkeypatch.setattr(LocalStore, "open_upload", hang)
    state = {"weight": torch.zeros(3)}
    try:
        assert session.save(job(1), state)
        assert begun.wait(60.0)
        assert session.save(job(2, kind="best", must_keep=True), state)
        assert session.metrics()["checkpoint/refused"] == 0
        assert not session.save(job(3), state)
        assert not session.save(job(4), state)
        assert session.metrics()["checkpoint/refused"] == 2
    finally:
        go_on.set()
        session.finish(None, 60.0)
        session.close()
