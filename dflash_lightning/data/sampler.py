"""This rank's micro-batches of one epoch, from the cursor on.

law   iterating consumes nothing: the DataLoader may call iter() twice, and its workers may run ahead
"""

from collections.abc import Iterator, Sequence

from torch.utils.data import Sampler

from dflash_lightning.plan.windows import RankBatch, Window


class InterleavedBatchSampler(Sampler[RankBatch]):
    """Walks the windows that are left of an epoch and yields the batches that the plan deals to one rank.

    Lightning calls `set_epoch` on it before each epoch; a plan is made for one epoch, so that call is a
    check:
    reusing one loader for all epochs would silently replay the first epoch's order for ever. Validation has
    the same plan in every epoch: there `epoch` is None.
    """

    def __init__(self, windows: Sequence[Window], *, rank: int, epoch: int | None) -> None:
        self.windows = windows
        self.rank = rank
        self.epoch = epoch

    def __iter__(self) -> Iterator[RankBatch]:
        for i in range(len(self.windows)):
            for micro_step in self.windows[i].batches:
                yield micro_step[self.rank]

    def __len__(self) -> int:
        """Micro-steps left."""
        return sum(self.window_sizes)

    @property
    def window_sizes(self) -> Sequence[int]:
        """Micro-steps in each window that is left. All but the last are full: none between is looked at."""
        if not len(self.windows):
            return []
        full, last = len(self.windows[0].batches), len(self.windows[-1].batches)
        return [full] * (len(self.windows) - 1) + [last]

    def set_epoch(self, epoch: int) -> None:
        """Refuse to serve an epoch this sampler was not planned for."""
        if self.epoch not in (None, epoch):
            raise RuntimeError(
                f"this loader holds the plan of epoch {self.epoch}, but Lightning runs epoch {epoch}; "
                "set trainer.reload_dataloaders_every_n_epochs to 1, so that each epoch gets its own plan"
            )
