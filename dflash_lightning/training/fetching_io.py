"""`ckpt_path="s3://bucket/prefix"`, or a folder of checkpoints: fetched, verified, then loaded.

in    an address as checkpoint/resume.py reads it; anything else goes to Lightning as it is
law   rank 0 decides which checkpoint it is, all ranks load that one; each node downloads it once
law   nothing of it stays on the disk
"""

import shutil
import tempfile
from pathlib import Path
from typing import Any
from uuid import uuid4

from lightning import Trainer
from lightning.fabric.plugins.io.checkpoint_io import CheckpointIO
from lightning.pytorch.plugins.io.wrapper import _WrappingCheckpointIO
from lightning.pytorch.strategies import Strategy
from lightning.pytorch.utilities import rank_zero_info

from dflash_lightning.checkpoint.address import is_address
from dflash_lightning.checkpoint.fetch import Fetched, fetch_checkpoint
from dflash_lightning.checkpoint.stores.errors import StoreError
from dflash_lightning.checkpoint.stores.settings import StoreSettings


def fetch_addresses(trainer: Trainer, settings: StoreSettings) -> None:
    """From now on this trainer understands addresses. Asking twice changes nothing."""
    strategy = trainer.strategy
    if not isinstance(strategy.checkpoint_io, FetchingIO):
        strategy.checkpoint_io = FetchingIO(strategy.checkpoint_io, strategy, settings)


class FetchingIO(_WrappingCheckpointIO):
    """In front of the trainer's own way to read and write files. $TMPDIR says where downloads go."""

    def __init__(self, inner: CheckpointIO, strategy: Strategy, settings: StoreSettings) -> None:
        super().__init__(inner)
        self._strategy = strategy
        self._settings = settings

    def load_checkpoint(self, path: Any, *args: Any, **options: Any) -> dict[str, Any]:
        """On every rank. Raises: StoreError, on all ranks where rank 0 finds nothing that is whole."""
        if not is_address(str(path)):
            return super().load_checkpoint(path, *args, **options)
        folder, file = self._fetch(str(path))
        try:
            return super().load_checkpoint(file, *args, **options)
        finally:
            self._strategy.barrier("fetched")
            if self._strategy.local_rank == 0:  # type: ignore[attr-defined]  # of all that are supported
                shutil.rmtree(folder, ignore_errors=True)

    def teardown(self) -> None:
        assert self.checkpoint_io is not None
        self.checkpoint_io.teardown()

    def _fetch(self, uri: str) -> tuple[Path, Path]:
        """The folder of the download, the same name on every node, and the file in it."""
        fetched: Fetched | None = None
        problem: Exception | None = None
        name = f"dflash-checkpoint-{uuid4().hex}"
        if self._strategy.is_global_zero:
            try:
                fetched = fetch_checkpoint(uri, self._settings, _temporary(name))
                rank_zero_info(f"loading {fetched.uri}")
            except (StoreError, OSError, ValueError) as error:
                problem = error
        ours = (name, fetched.uri if fetched else None, str(problem))
        name, exact, reason = self._strategy.broadcast(ours)
        if problem is not None:
            raise problem
        if exact is None:
            raise StoreError(f"rank 0 cannot fetch {uri}: {reason}", kind="other")
        fetched = fetched or fetch_checkpoint(exact, self._settings, _temporary(name))
        return _temporary(name), fetched.path


def _temporary(name: str) -> Path:
    return Path(tempfile.gettempdir()) / name
