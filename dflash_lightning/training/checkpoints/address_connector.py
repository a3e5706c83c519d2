"""`ckpt_path="s3://bucket/prefix"`, or a folder of checkpoints: fetched, verified, then loaded.

in    an address as checkpoint/resuming/resume.py reads it; anything else goes to Lightning as it is
out   the state of the run; or none, where the run may start fresh and its store holds no checkpoint yet
law   rank 0 decides which checkpoint it is, all ranks load that one; each node downloads it once
law   nothing of it stays on the disk
"""

import logging
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from lightning import Trainer
from lightning.pytorch.trainer.connectors.checkpoint_connector import _CheckpointConnector
from lightning.pytorch.utilities import rank_zero_info
from lightning.pytorch.utilities.migration.utils import _pl_migrate_checkpoint

from dflash_lightning.checkpoint.redact import redact_text
from dflash_lightning.checkpoint.resuming.address import is_address
from dflash_lightning.checkpoint.resuming.fetch import Fetched, fetch_checkpoint
from dflash_lightning.checkpoint.resuming.resume import NothingFound, asks_for_newest_of
from dflash_lightning.checkpoint.stores.errors import StoreError
from dflash_lightning.checkpoint.stores.settings import StoreSettings
from dflash_lightning.training.checkpoints.split_state import files_for, load_fetched
from dflash_lightning.training.gather import texts_of_all_ranks

log = logging.getLogger(__name__)
_WHOLE = "whole"


def fetch_addresses(trainer: Trainer, settings: StoreSettings, *, fresh_at: str | None = None) -> None:
    """From now on this trainer understands addresses. Asking twice changes nothing.

    `fresh_at`: a fit from the newest checkpoint of this store begins from nothing while there is none.
    """
    before = trainer._checkpoint_connector
    if not isinstance(before, AddressConnector):
        connector = AddressConnector(trainer, settings, fresh_at)
        connector._ckpt_path, connector._user_managed = before._ckpt_path, before._user_managed
        trainer._checkpoint_connector = connector


class AddressConnector(_CheckpointConnector):
    """Lightning's own way to save and resume, in front of it a store. $TMPDIR says where downloads go."""

    def __init__(self, trainer: Trainer, settings: StoreSettings, fresh_at: str | None) -> None:
        super().__init__(trainer)
        self._settings = settings
        self._fresh_at = fresh_at

    def resume_start(self, checkpoint_path: Any = None, weights_only: bool | None = None) -> None:
        """On every rank. Raises: StoreError, on all ranks where rank 0 finds nothing that is whole."""
        if not checkpoint_path or not is_address(str(checkpoint_path)):
            super().resume_start(checkpoint_path, weights_only)
            return
        with self._fetched(str(checkpoint_path)) as fetched:
            if fetched is None:
                super().resume_start(None)
                return
            loaded = load_fetched(self.trainer, fetched.path, weights_only=weights_only)
        self._loaded_checkpoint = _pl_migrate_checkpoint(loaded, fetched.path)
        self._ckpt_path = fetched.uri

    @contextmanager
    def _fetched(self, uri: str) -> Iterator[Fetched | None]:
        """What lies on this node's disk within the block; None for a fresh start."""
        strategy = self.trainer.strategy
        name, exact = self._agree(uri)
        folder = _folder(name)
        try:
            yield None if exact is None else self._fetch(exact, folder)
        finally:
            strategy.barrier("fetched")
            if strategy.local_rank == 0:  # type: ignore[attr-defined]  # of all that are supported
                shutil.rmtree(folder, ignore_errors=True)

    def _fetch(self, exact: str, folder: Path) -> Fetched:
        """What this rank needs of it; or an error on all ranks, where one cannot have it."""
        fetched, problem = None, None
        try:
            fetched = fetch_checkpoint(exact, self._settings, folder, files=files_for(self.trainer))
        except (StoreError, OSError) as error:
            problem = error
        reasons = texts_of_all_ranks(self.trainer, str(problem or _WHOLE))
        if problem is not None:
            raise problem
        failed = [f"rank {rank}: {text}" for rank, text in enumerate(reasons) if text != _WHOLE]
        if failed or fetched is None:
            raise StoreError(f"{exact} cannot be fetched by all ranks: {'; '.join(failed)}", kind="other")
        return fetched

    def _agree(self, uri: str) -> tuple[str, str | None]:
        """A name for the download's folder, and the address of exactly one checkpoint or None."""
        strategy = self.trainer.strategy
        name, exact = f"dflash-checkpoint-{uuid4().hex}", None
        problem: Exception | None = None
        if strategy.is_global_zero:
            try:
                exact = self._look(uri, _folder(name))
            except (StoreError, OSError, ValueError) as error:
                problem = error
                shutil.rmtree(_folder(name), ignore_errors=True)  # files of one whose other files are broken
        ours = name, exact, None if problem is None else str(problem)
        name, exact, reason = strategy.broadcast(ours)
        if problem is not None:
            raise problem
        if reason is not None:
            raise StoreError(f"rank 0 cannot fetch {uri}: {reason}", kind="other")
        return name, exact

    def _look(self, uri: str, folder: Path) -> str | None:
        """Rank 0: fetches at once, so that a checkpoint which turns out to be broken is passed over."""
        may_start_fresh = (
            self.trainer.state.fn == "fit"
            and self._fresh_at is not None
            and asks_for_newest_of(self._fresh_at, uri)
        )
        try:
            exact = fetch_checkpoint(uri, self._settings, folder, files=files_for(self.trainer)).uri
        except NothingFound as nothing:
            if not may_start_fresh:
                raise
            log.warning("starting fresh: %s", redact_text(str(nothing)))
            return None
        rank_zero_info(f"loading {exact}")
        return exact


def _folder(name: str) -> Path:
    """Of a download, on this node."""
    return Path(tempfile.gettempdir()) / name
