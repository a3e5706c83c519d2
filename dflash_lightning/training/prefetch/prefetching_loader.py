"""The DataModule's loader with the target pipeline behind it.

in    a loader of TokenBatch, a pipeline
out   (TokenBatch, TargetStates) of the same batches
law   Lightning sees the loader's own length and sampler; an iterator begins to work at its first batch, so
      that making several (Lightning does) costs nothing; one that is dropped ends its threads
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from itertools import islice

from lightning import Trainer
from lightning.pytorch.profilers import Profiler
from torch.utils.data import DataLoader

from dflash_lightning.data.batch import TokenBatch
from dflash_lightning.data.sampler import InterleavedBatchSampler
from dflash_lightning.target.hidden_states import TargetStates
from dflash_lightning.target.pipeline import TargetPipeline

WAIT = "wait_for_states"
"""What training announces to the profiler while it waits for the pipeline."""


class PrefetchingLoader:
    """Iterate to train. How far the pipeline is ahead shows nowhere but in its counters."""

    def __init__(self, loader: DataLoader[TokenBatch], pipeline: TargetPipeline, trainer: Trainer) -> None:
        self._loader = loader
        self._pipeline = pipeline
        self._trainer = trainer

    @property
    def sampler(self) -> InterleavedBatchSampler:
        """Lightning tells it the epoch."""
        sampler = self._loader.sampler
        assert isinstance(sampler, InterleavedBatchSampler)
        return sampler

    def _profile(self, action: str) -> AbstractContextManager[str]:
        profiler: Profiler = self._trainer.profiler  # type: ignore[attr-defined]  # may be changed on the way
        return profiler.profile(action)

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[tuple[TokenBatch, TargetStates]]:
        with self._pipeline.run(self._loader, self.sampler.window_sizes) as pairs:
            while found := self._next(pairs):
                yield found.pop()  # kept by training alone: behind an epoch's last batch this frame waits on

    def _next(
        self, pairs: Iterator[tuple[TokenBatch, TargetStates]]
    ) -> list[tuple[TokenBatch, TargetStates]]:
        """[the next pair], or nothing at the end."""
        with self._profile(WAIT):
            return list(islice(pairs, 1))
