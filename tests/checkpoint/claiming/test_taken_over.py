"""A run whose prefix another run has taken over stores nothing there any more, not even what waited."""

import json
import threading
import time
from functools import partial

import torch

from dflash_lightning.checkpoint.claiming.heartbeat import Heartbeat
from dflash_lightning.checkpoint.claiming.owner import OWNER
from dflash_lightning.checkpoint.listing import list_manifests
from dflash_lightning.checkpoint.session import Memory, Session
from dflash_lightning.checkpoint.stores.errors import StoreError
from dflash_lightning.checkpoint.stores.local import LocalStore
from dflash_lightning.checkpoint.stores.settings import StoreSettings
from tests.checkpoint.saving import job

DOWN_S = 3.0


def test_what_waits_is_named_and_not_stored(tmp_path, monkeypatch):
    healthy, upload = threading.Event(), LocalStore.open_upload

    def down(self, key, *, size_hint):
        if not healthy.is_set():
            raise StoreError("down for a while", kind="transient")
        return upload(self, key, size_hint=size_hint)

    soon = partial(Heartbeat, every_s=0.05)
    monkeypatch.setattr("dflash_lightning.checkpoint.session.Heartbeat", soon)
    session = Session(str(tmp_path), StoreSettings(), "ours", Memory(process=False))
    monkeypatch.setattr(LocalStore, "open_upload", down)
    session.save(job(4, kind="best", must_keep=True), {"weight": torch.zeros(3)})
    owner = json.loads((tmp_path / OWNER).read_text()) | {"run_id": "theirs", "nonce": "theirs"}
    deadline = time.monotonic() + 60
    while not session.taken_over and time.monotonic() < deadline:
        (tmp_path / OWNER).write_text(json.dumps(owner))  # again, where its sign of life was faster
        time.sleep(0.2)
    assert "now belongs to run theirs" in str(session.problem)

    back = threading.Timer(DOWN_S, healthy.set)
    back.start()
    lost = session.finish(None, 20 * DOWN_S)
    session.close()
    back.join()
    assert [waiting.step for waiting in lost] == [4]
    assert list_manifests(LocalStore(tmp_path), "").manifests == ()
    assert json.loads((tmp_path / OWNER).read_text())["run_id"] == "theirs"
