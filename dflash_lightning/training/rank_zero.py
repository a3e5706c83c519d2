"""What rank 0 alone does for all, and what it cannot do: the end of all ranks, with its reason."""

from lightning import Trainer

from dflash_lightning.checkpoint.stores.errors import StoreError


def raise_on_all_ranks(trainer: Trainer, problem: Exception | None) -> None:
    """A collective. `problem` is rank 0's; other ranks give None.

    Raises: `problem` itself on rank 0, a StoreError with its words on the others; nothing for None.
    """
    reason = trainer.strategy.broadcast(None if problem is None else str(problem))
    if problem is not None:
        raise problem
    if reason is not None:
        raise StoreError(f"rank 0: {reason}", kind="other")
