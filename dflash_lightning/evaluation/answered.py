"""What a server answered, and how long that took.

in    Reply per request: when it was sent, how long its answer took, how many tokens it has
out   Served: tokens/s of a request and of all, latencies; of all prompts, of a category, of chosen ones
law   pure; a request that failed adds neither tokens nor its wait to a speed
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from math import inf, nan

import numpy as np

from dflash_lightning.evaluation.speculation import Speculation


@dataclass(frozen=True)
class Reply:
    """One request: how long its answer took, and how many tokens it has, or why there is none."""

    category: str
    seconds: float
    tokens: int = 0
    failure: str = ""
    started: float = 0.0
    """Seconds after the first request."""


@dataclass(frozen=True)
class Served:
    """A server under these prompts."""

    url: str
    model: str
    replies: tuple[Reply, ...]
    """In the order of the prompts."""
    speculation: Speculation | None
    """Of all prompts: a server does not report it for some of them."""
    first_token_s: float | None = None
    """Mean seconds to the first token over this run, as the server counts it; of all prompts, too."""

    @property
    def answered(self) -> list[Reply]:
        return [reply for reply in self.replies if not reply.failure]

    @property
    def tokens(self) -> int:
        return sum(reply.tokens for reply in self.answered)

    @property
    def seconds(self) -> float:
        """While at least one request was under way that was answered."""
        return seconds_under_way(self.answered)

    @property
    def tokens_per_s(self) -> float:
        """Of all requests together; NaN where none was answered."""
        return self.tokens / max(self.seconds, 1e-9) if self.answered else nan

    @property
    def request_tokens_per_s(self) -> float:
        """Mean over requests of each one's own; NaN where none was answered."""
        speeds = [reply.tokens / max(reply.seconds, 1e-9) for reply in self.answered]
        return float(np.mean(speeds)) if speeds else nan

    def latency(self, share: float) -> float:
        """Seconds within which this share of the answers was there, whole; NaN where there is none."""
        seconds = [reply.seconds for reply in self.answered]
        return float(np.quantile(seconds, share)) if seconds else nan

    @property
    def by_category(self) -> "dict[str, Served]":
        """Empty where there is one category."""
        names = sorted({reply.category for reply in self.replies})
        numbers = {n: [i for i, reply in enumerate(self.replies) if reply.category == n] for n in names}
        return {n: self.only(numbers[n]) for n in names} if len(names) > 1 else {}

    def only(self, numbers: Collection[int]) -> "Served":
        """The same server under the prompts of these numbers."""
        replies = tuple(self.replies[i] for i in numbers)
        return replace(self, replies=replies, speculation=None, first_token_s=None)


def seconds_under_way(replies: Sequence[Reply]) -> float:
    """While at least one of the requests was under way."""
    total, until = 0.0, -inf
    for start, stop in sorted((reply.started, reply.started + reply.seconds) for reply in replies):
        total += max(0.0, stop - max(start, until))
        until = max(until, stop)
    return total


def both_answered(first: Served, second: Served) -> tuple[Served, Served]:
    """Two servers under the prompts that both answered: their speeds over others are no comparison."""
    pairs = enumerate(zip(first.replies, second.replies, strict=True))
    numbers = [i for i, (one, other) in pairs if not one.failure and not other.failure]
    return first.only(numbers), second.only(numbers)
