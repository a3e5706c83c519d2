"""What servers did, for people and for programs.

in    Served, one or two
out   lines; or plain values that json.dumps takes
"""

from collections import Counter
from collections.abc import Callable, Sequence
from math import isnan
from typing import Any

from dflash_lightning.evaluation.answered import Served, both_answered
from dflash_lightning.evaluation.finite import finite
from dflash_lightning.evaluation.served import Asked
from dflash_lightning.plan_view.columns import columns, percent, plural


def served_text(servers: Sequence[Served], asked: Asked) -> str:
    """A column per server, its categories, and the second over the first where there are two."""
    rows = [("", *(served.url for served in servers))]
    rows += [(name, *(text(served) for served in servers)) for name, text in _ROWS.items()]
    lines = columns([row for row in rows if any(row[1:])], left=1)
    longest, at_once = plural(asked.max_new_tokens, "token"), plural(asked.concurrency, "request")
    lines.append(f"at most {longest} per answer, {at_once} at once")
    if len(servers) == 2:
        lines.append(_compared(*servers))
    for served in servers:
        failures = Counter(reply.failure for reply in served.replies if reply.failure)
        lines += [f"{served.url}: {count} failed: {reason}" for reason, count in failures.most_common(3)]
    for served in servers:
        if parts := served.by_category:
            table = [("category", *_PART_ROWS), *((name, *_part_cells(part)) for name, part in parts.items())]
            lines += ["", f"{served.url} by category", *(f"  {line}" for line in columns(table, left=1))]
    return "\n".join(lines)


def _compared(first: Served, second: Served) -> str:
    one, other = both_answered(first, second)
    if not one.replies:
        return "no prompt was answered by both, so that there are no speeds to compare"
    some = len(one.replies) < len(first.replies)
    over = f", over the {plural(len(one.replies), 'prompt')} that both answered" if some else ""
    return (
        f"speed of the first over the second: {one.tokens_per_s / other.tokens_per_s:.2f} in all, "
        f"{one.request_tokens_per_s / other.request_tokens_per_s:.2f} per request{over}"
    )


def _part_cells(part: Served) -> list[str]:
    return [text(part) for text in _PART_ROWS.values()]


def _number(value: float, form: str) -> str:
    """A dash where nothing was answered."""
    return "-" if isnan(value) else form.format(value)


_PART_ROWS: dict[str, Callable[[Served], str]] = {
    "answered": lambda served: f"{len(served.answered)} of {len(served.replies)}",
    "tokens": lambda served: f"{served.tokens:,}",
    "tokens/s per request": lambda served: _number(served.request_tokens_per_s, "{:.1f}"),
    "latency, median": lambda served: _number(served.latency(0.5), "{:.3f} s"),
    "latency, 95 %": lambda served: _number(served.latency(0.95), "{:.3f} s"),
}
_ROWS: dict[str, Callable[[Served], str]] = {
    "model": lambda served: served.model,
    **_PART_ROWS,
    "tokens/s in all": lambda served: f"{served.tokens_per_s:.1f}",
    "first token, mean": lambda served: (
        "" if served.first_token_s is None else f"{served.first_token_s:.3f} s, according to the server"
    ),
    "acceptance length": lambda served: (
        f"{served.speculation.tau:.2f}" if served.speculation else "not reported"
    ),
    "  according to": lambda served: served.speculation.source if served.speculation else "",
    "  slots accepted": lambda served: (
        ", ".join(percent(share) for share in served.speculation.slots) if served.speculation else ""
    ),
}


def served_values(served: Served) -> dict[str, Any]:
    """Times in seconds. What the server reports, and speeds where nothing was answered, may be null."""
    said = served.speculation
    values: dict[str, Any] = finite(
        {
            "url": served.url,
            "model": served.model,
            **_part_values(served),
            "seconds": served.seconds,
            "tokens_per_s": served.tokens_per_s,
            "first_token_mean_s": served.first_token_s,
            "tau": None if said is None else said.tau,
            "tau_source": None if said is None else said.source,
            "slot_acceptance": [] if said is None else list(said.slots),
            "categories": {name: _part_values(part) for name, part in served.by_category.items()},
        }
    )
    return values


def _part_values(part: Served) -> dict[str, Any]:
    return {
        "requests": len(part.replies),
        "answered": len(part.answered),
        "new_tokens": part.tokens,
        "request_tokens_per_s": part.request_tokens_per_s,
        "latency_median_s": part.latency(0.5),
        "latency_95_s": part.latency(0.95),
    }
