"""What a running server says about its own drafting.

in    the texts of its pages, before and after a run
out   Speculation: acceptance length, and per slot where the server counts so
law   pure; only what the server counted, and over what time it counted, is said; numbers that are not finite
      say nothing

vLLM counts drafts and accepted tokens on its /metrics page; SGLang gives a mean on /server_info, or a gauge
on /metrics. Both count the bonus token in the acceptance length, or are made to here (spec/dflash.md 4.5).
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isfinite, nan

_SAMPLE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)", re.MULTILINE)
_POSITION = re.compile(r'position="(\d+)"')
_VLLM = "vllm:spec_decode_num_"
_SGLANG = "sglang:spec_accept_length"


@dataclass(frozen=True)
class Speculation:
    tau: float
    """Tokens per target pass, the bonus token included."""
    source: str
    """Where the server says so, and over what time."""
    rounds: int | None = None
    """Drafts that were verified; None where the server gives a mean only."""
    slots: tuple[float, ...] = ()
    """Share of drafts in which the token of slot 1, 2, ... was accepted."""


def counters(page: str) -> dict[str, float]:
    """Samples of a Prometheus page, added up over engines and ranks; those of a slot as name[slot].

    A sum is NaN where one of its samples is no number: without that one it would be another sum.
    """
    found: defaultdict[str, float] = defaultdict(float)
    for name, labels, value in _SAMPLE.findall(page):
        position = _POSITION.search(labels)
        key = name.removesuffix("_total") + (f"[{position[1]}]" if position else "")
        found[key] += _number(value)
    return dict(found)


def from_counters(before: str, after: str) -> Speculation | None:
    """vLLM's page before and after the run; None where nothing was drafted in between, or is counted.

    A first page without any number was not read: then all that the server ever counted is given, and called
    so. Counters that shrank were begun anew in between, and say nothing.
    """
    old, new = counters(before), counters(after)
    grown = {name: new[name] - old.get(name, 0.0) for name in new if name.startswith(_VLLM)}
    grown = {name: number for name, number in grown.items() if not name.endswith("_created")}
    if not all(isfinite(number) and number >= 0 for number in grown.values()):
        return None
    rounds, accepted = grown.get(f"{_VLLM}drafts", 0), grown.get(f"{_VLLM}accepted_tokens")
    if rounds <= 0 or accepted is None:
        return None
    slots: list[float] = []
    while (name := f"{_VLLM}accepted_tokens_per_pos[{len(slots)}]") in grown:
        slots.append(grown[name] / rounds)
    time = "over this run" if any(map(isfinite, old.values())) else "since the server started"
    return Speculation(1 + accepted / rounds, f"vLLM's counters, {time}", int(rounds), tuple(slots))


def from_gauge(page: str) -> Speculation | None:
    """SGLang's gauge, the mean over the ranks that drafted."""
    lengths = [value for name, _, value in _SAMPLE.findall(page) if name == _SGLANG]
    return _mean(lengths, "SGLang's gauge, of its latest decoding")


def from_server_info(body: str) -> Speculation | None:
    """SGLang's /server_info: the mean over its workers that drafted."""
    try:
        states = json.loads(body).get("internal_states", [])
        lengths = [state.get("avg_spec_accept_length") for state in states if isinstance(state, Mapping)]
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None
    return _mean(lengths, "SGLang's mean since the server started")


def _mean(lengths: Iterable[object], source: str) -> Speculation | None:
    """None where no length is given. 0 is said by what does not draft, or has not drafted yet."""
    values = [value for value in map(_number, lengths) if isfinite(value) and value > 0]
    return Speculation(sum(values) / len(values), source) if values else None


def _number(value: object) -> float:
    """NaN for what is none."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return nan
    try:
        return float(value)
    except (ValueError, OverflowError):
        return nan
