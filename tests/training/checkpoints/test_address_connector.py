"""Resuming from a store, in one process and without a run."""

import tempfile

import pytest

from dflash_lightning.checkpoint.stores.errors import StoreError
from dflash_lightning.checkpoint.stores.local import LocalStore
from dflash_lightning.checkpoint.stores.settings import StoreSettings
from dflash_lightning.training.checkpoints.address_connector import fetch_addresses
from tests.checkpoint.saving import save
from tests.runs import toy_trainer


def test_what_was_fetched_of_a_broken_checkpoint_is_taken_away(tmp_path, monkeypatch):
    store = LocalStore(tmp_path / "store")
    save(store, 8, prefix="")
    data = next((tmp_path / "store" / "data").glob("step=8-*"))
    data.write_bytes(data.read_bytes()[:-1] + b"?")
    (tmp_path / "disk").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "disk"))
    trainer = toy_trainer(tmp_path)
    fetch_addresses(trainer, StoreSettings())
    with pytest.raises(StoreError, match="no checkpoint at .* can be used"):
        trainer._checkpoint_connector.resume_start(str(store.root))
    assert list((tmp_path / "disk").iterdir()) == []
