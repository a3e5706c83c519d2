"""Strategies by name, for `--order`, `--packing` and `--compare`.

in    a PlanConfig and words such as credit, random_order, window_first:32, edges=optimal, super_buckets:3
out   the PlanConfig with that strategy in place of its own
law   what a name does not speak of stays as it is
"""

from dataclasses import replace
from typing import Any

from dflash_lightning.plan.config import PlanConfig
from dflash_lightning.plan.strategies import ORDERS, PACKINGS, named_order, named_packing

EDGE_RULES = ("edges=quantile", "edges=optimal")
NAMES = (
    *ORDERS,
    *(name if name != "window_first" else "window_first:32" for name in PACKINGS),
    *EDGE_RULES,
    "super_buckets:3",
)
"""Every name that --compare knows; a number behind a colon may be another one."""


def with_order(plan: PlanConfig, name: str) -> PlanConfig:
    """Raises ValueError for a name that means no order."""
    return replace(plan, order=named_order(name))


def with_packing(plan: PlanConfig, name: str, *, window_batches: int) -> PlanConfig:
    """window_first:32 says the window it fills; without a number it is the run's own, `window_batches`.

    Raises: ValueError for a name that means no packing.
    """
    name, _, number = name.partition(":")
    if number and name != "window_first":
        raise ValueError(f"packing {name} takes no number, got {number!r}")
    window = _integer(f"window_first:{number}", number) if number else window_batches
    return replace(plan, packing=named_packing(name, window_batches=window))


def with_strategy(plan: PlanConfig, text: str, *, window_batches: int) -> PlanConfig:
    """One name of NAMES, or several joined by `+`, each in place of what the plan had.

    Raises: ValueError with the list of names where one is unknown.
    """
    for name in text.split("+"):
        plan = _with_name(plan, name.strip(), window_batches=window_batches)
    return plan


def _with_name(plan: PlanConfig, name: str, *, window_batches: int) -> PlanConfig:
    stem, _, number = name.partition(":")
    if name in ORDERS:
        return with_order(plan, name)
    if stem in PACKINGS:
        return with_packing(plan, name, window_batches=window_batches)
    if name in EDGE_RULES:
        rule: Any = name.removeprefix("edges=")
        return replace(plan, edges=rule)
    if stem == "super_buckets" and number:
        return replace(plan, super_buckets=_integer(name, number))
    raise ValueError(
        f"--compare knows no strategy {name!r}; choose of {', '.join(NAMES)}, or join several with +"
    )


def _integer(name: str, text: str) -> int:
    if not text.isdigit():
        raise ValueError(f"{name}: {text!r} is not a whole number")
    return int(text)
