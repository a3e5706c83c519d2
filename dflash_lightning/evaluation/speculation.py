"""What a running server says about its own drafting.

in    the texts of its pages, before and after a run
out   Speculation: acceptance length, and per slot where the server counts so
law   pure; only what the server counted, and over what time it counted, is said

vLLM counts drafts and accepted tokens on its /metrics page; SGLang gives a mean on /server_info, or a gauge
on /metrics. Both count the bonus token in the acceptance length, or are made to here (spec/dflash.md 4.5).
"""

import json
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

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
    """Samples of a Prometheus page, added up over engines and ranks; those of a slot as name[slot]."""
    found: defaultdict[str, float] = defaultdict(float)
    for name, labels, value in _SAMPLE.findall(page):
        position = _POSITION.search(labels)
        key = name.removesuffix("_total") + (f"[{position[1]}]" if position else "")
        try:
            number = float(value)
        except ValueError:  # a page of something else
            continue
        found[key] += number
    return dict(found)


def from_counters(before: str, after: str) -> Speculation | None:
    """vLLM's page before and after the run; None where nothing was drafted in between, or is counted."""
    old, new = counters(before), counters(after)
    grown = {name: new[name] - old.get(name, 0.0) for name in new if name.startswith(_VLLM)}
    rounds = grown.get(f"{_VLLM}drafts", 0)
    if rounds <= 0:
        return None
    slots: list[float] = []
    while (name := f"{_VLLM}accepted_tokens_per_pos[{len(slots)}]") in grown:
        slots.append(grown[name] / rounds)
    tau = 1 + grown.get(f"{_VLLM}accepted_tokens", 0) / rounds
    return Speculation(tau, "vLLM's counters, over this run", int(rounds), tuple(slots))


def from_gauge(page: str) -> Speculation | None:
    """SGLang's gauge, the mean over ranks."""
    found = [float(value) for name, _, value in _SAMPLE.findall(page) if name == _SGLANG]
    if not found or not any(found):
        return None
    return Speculation(sum(found) / len(found), "SGLang's gauge, of its latest decoding")


def from_server_info(body: str) -> Speculation | None:
    """SGLang's /server_info: the mean over its workers."""
    try:
        states = json.loads(body).get("internal_states", [])
        lengths = [state["avg_spec_accept_length"] for state in states if isinstance(state, Mapping)]
        values = [float(value) for value in lengths if value]
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    if not values:
        return None
    return Speculation(sum(values) / len(values), "SGLang's mean since the server started")
