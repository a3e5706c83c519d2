"""What servers did, for people and for programs.

in    Served, one or two
out   lines; or plain values that json.dumps takes
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from dflash_lightning.evaluation.served import Asked, Served
from dflash_lightning.plan_view.columns import columns, percent


def served_text(servers: Sequence[Served], asked: Asked) -> str:
    """A column per server, and the second over the first where there are two."""
    rows = [("", *(served.url for served in servers))]
    rows += [(name, *(text(served) for served in servers)) for name, text in _ROWS.items()]
    lines = columns([row for row in rows if any(row[1:])], left=1)
    lines.append(f"at most {asked.max_new_tokens:,} tokens per answer, {asked.concurrency} requests at once")
    if len(servers) == 2:
        first, second = servers
        lines.append(
            f"speed of the first over the second: {first.tokens_per_s / second.tokens_per_s:.2f} in all, "
            f"{first.request_tokens_per_s / second.request_tokens_per_s:.2f} per request"
        )
    for served in servers:
        failures = Counter(reply.failure for reply in served.replies if reply.failure)
        lines += [f"{served.url}: {count} failed: {reason}" for reason, count in failures.most_common(3)]
    return "\n".join(lines)


_ROWS: dict[str, Callable[[Served], str]] = {
    "model": lambda served: served.model,
    "answered": lambda served: f"{len(served.answered)} of {len(served.replies)}",
    "tokens": lambda served: f"{served.tokens:,}",
    "tokens/s in all": lambda served: f"{served.tokens_per_s:.1f}",
    "tokens/s per request": lambda served: f"{served.request_tokens_per_s:.1f}",
    "latency, median": lambda served: f"{served.latency(0.5):.3f} s",
    "latency, 95 %": lambda served: f"{served.latency(0.95):.3f} s",
    "acceptance length": lambda served: (
        f"{served.speculation.tau:.2f}" if served.speculation else "not reported"
    ),
    "  according to": lambda served: served.speculation.source if served.speculation else "",
    "  slots accepted": lambda served: (
        ", ".join(percent(share) for share in served.speculation.slots) if served.speculation else ""
    ),
}


def served_values(served: Served) -> dict[str, Any]:
    """Times in seconds; the last three are null or empty where the server does not report them."""
    said = served.speculation
    return {
        "url": served.url,
        "model": served.model,
        "requests": len(served.replies),
        "answered": len(served.answered),
        "new_tokens": served.tokens,
        "seconds": served.seconds,
        "tokens_per_s": served.tokens_per_s,
        "request_tokens_per_s": served.request_tokens_per_s,
        "latency_median_s": served.latency(0.5),
        "latency_95_s": served.latency(0.95),
        "tau": None if said is None else said.tau,
        "tau_source": None if said is None else said.source,
        "slot_acceptance": [] if said is None else list(said.slots),
    }
