"""Orders and packings by the short names that commands and tables use.

in    a name; for window_first also the batches of a window
out   Order, Packing
"""

from collections.abc import Callable, Mapping
from typing import TypeVar

from dflash_lightning.plan.batches import PoolSorted, RandomOrder
from dflash_lightning.plan.mixed import MixedBuckets
from dflash_lightning.plan.order import Credit, DiversityFirst, Order, Shuffle
from dflash_lightning.plan.packing import Packing
from dflash_lightning.plan.window_first import WindowFirst

T = TypeVar("T")

ORDERS: Mapping[str, Callable[[], Order]] = {
    "credit": Credit,
    "diversity_first": DiversityFirst,
    "shuffle": Shuffle,
}
PACKINGS: Mapping[str, Callable[[int], Packing]] = {
    "pool_sorted": lambda _: PoolSorted(),
    "random_order": lambda _: RandomOrder(),
    "mixed_buckets": lambda _: MixedBuckets(),
    "window_first": lambda window_batches: WindowFirst(window_batches=window_batches),
}


def named_order(name: str) -> Order:
    """Raises: ValueError for a name that means no order."""
    return _look_up(ORDERS, name, "order")()


def named_packing(name: str, *, window_batches: int = 32) -> Packing:
    """`window_batches` matters to window_first only. Raises: ValueError for a name that means no packing."""
    return _look_up(PACKINGS, name, "packing")(window_batches)


def _look_up(known: Mapping[str, T], name: str, what: str) -> T:
    if name not in known:
        raise ValueError(f"there is no {what} named {name!r}; choose one of {', '.join(known)}")
    return known[name]
