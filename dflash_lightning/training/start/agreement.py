"""What every rank must have in common, compared before the first step.

in    facts of each rank as plain values: the settings of the run, versions, the target
out   nothing, or one message on every rank that names what differs, where, and what to do
law   a difference found later would be a hang in a collective, or a run that no checkpoint describes
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lightning import Trainer

from dflash_lightning.training.gather import texts_of_all_ranks

_SHOWN = 5
_ABSENT = "absent"


def require_agreement(trainer: Trainer, what: str, facts: Any, *, way_out: str) -> None:
    """A collective. Raises ValueError on all ranks where a rank has other `facts` than rank 0.

    Args:
        what: Names the facts in the message, such as "settings".
        facts: Nested mappings and lists of plain values, without secrets: they travel, and differences are
            shown.
        way_out: What a user can do about a difference.
    """
    if trainer.world_size == 1:
        return
    texts = texts_of_all_ranks(trainer, json.dumps(flatten(facts), default=str))
    require_equal(what, [json.loads(text) for text in texts], way_out=way_out)


def require_equal(what: str, facts: Sequence[Mapping[str, Any]], *, way_out: str) -> None:
    """`facts[r]` are those of rank r, flat. Raises ValueError naming each difference from rank 0."""
    lines = [line for rank in range(1, len(facts)) for line in _differences(facts[0], facts[rank], rank)]
    if lines:
        more = f"; and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
        raise ValueError(f"ranks have different {what}: {'; '.join(lines[:_SHOWN])}{more}. {way_out}")


def flatten(facts: Any) -> dict[str, Any]:
    """{"a": {"b": [1]}} -> {"a.b.0": 1}; what is empty stays as it is."""
    return dict(_leaves(facts, ""))


def _leaves(facts: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(facts, (Mapping, list, tuple)) and facts:
        items = facts.items() if isinstance(facts, Mapping) else enumerate(facts)
        for name, value in items:
            yield from _leaves(value, f"{path}.{name}" if path else str(name))
    else:
        yield path, facts


def _differences(first: Mapping[str, Any], other: Mapping[str, Any], rank: int) -> list[str]:
    return [
        f"{name} is {first.get(name, _ABSENT)} on rank 0 and {other.get(name, _ABSENT)} on rank {rank}"
        for name in sorted({*first, *other})
        if first.get(name, _ABSENT) != other.get(name, _ABSENT)
    ]
