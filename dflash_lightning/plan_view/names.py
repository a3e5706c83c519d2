"""Strategies by name, for `--order`, `--packing` and `--compare`.

in    a PlanConfig and words such as credit, random_order, window_first:32, edges=optimal, super_buckets:3
out   the PlanConfig with that strategy in place of its own
law   what a name does not speak of stays as it is; but WindowFirst decides the order itself, whatever it was
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dflash_lightning.plan.config import PlanConfig
from dflash_lightning.plan.order import Credit
from dflash_lightning.plan.packing import Packing
from dflash_lightning.plan.strategies import ORDERS, PACKINGS, named_order, named_packing

EDGE_RULES = ("edges=quantile", "edges=optimal")
NAMES = (
    *ORDERS,
    *(name if name != "window_first" else "window_first:32" for name in PACKINGS),
    *EDGE_RULES,
    "super_buckets:3",
)
"""Every name that --compare knows; a number behind a colon may be another one."""


def packing_of(name: str, *, window_batches: int) -> Packing:
    """window_first:32 says the window it fills; without a number it is the run's own, `window_batches`.

    Raises: ValueError for a name that means no packing.
    """
    name, _, number = name.partition(":")
    if number and name != "window_first":
        raise ValueError(f"packing {name} takes no number, got {number!r}")
    window = _integer(f"window_first:{number}", number) if number else window_batches
    return named_packing(name, window_batches=window)


def with_changes(plan: PlanConfig, changes: Mapping[str, Any]) -> PlanConfig:
    """The plan with other values, all at once: what is in between need not make sense.

    A packing that decides the order does so too where the plan had one of its own, unless `changes` names an
    order, which is refused.
    """
    packing = changes.get("packing")
    decided = {"order": Credit()} if isinstance(packing, Packing) and packing.decides_order else {}
    return replace(plan, **{**decided, **changes})


def with_strategy(plan: PlanConfig, text: str, *, window_batches: int) -> PlanConfig:
    """One name of NAMES, or several joined by `+`, each in place of what the plan had.

    Raises: ValueError with the list of names where one is unknown, and where two say the same thing.
    """
    changes: dict[str, Any] = {}
    for name in text.split("+"):
        field, value = _meaning(name.strip(), window_batches=window_batches)
        if field in changes:
            raise ValueError(f"--compare {text}: a strategy has one plan.{field}, and this names two")
        changes[field] = value
    return with_changes(plan, changes)


def _meaning(name: str, *, window_batches: int) -> tuple[str, Any]:
    """The field of PlanConfig that a name speaks of, and what it makes of it."""
    stem, _, number = name.partition(":")
    if name in ORDERS:
        return "order", named_order(name)
    if stem in PACKINGS:
        return "packing", packing_of(name, window_batches=window_batches)
    if name in EDGE_RULES:
        return "edges", name.removeprefix("edges=")
    if stem == "super_buckets" and number:
        return "super_buckets", _integer(name, number)
    raise ValueError(
        f"--compare knows no strategy {name!r}; choose of {', '.join(NAMES)}, or join several with +"
    )


def _integer(name: str, text: str) -> int:
    if not text.isdigit():
        raise ValueError(f"{name}: {text!r} is not a whole number")
    return int(text)
