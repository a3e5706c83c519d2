"""Settings of `regenerate`, checked before any file is read.

in    what the user chose
out   RegenerateConfig: what decides the answers; ServerSettings: how a server is asked
law   what decides the answers is part of the identity of unfinished work; how they are got is not
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from dflash_lightning.data.sources import JSON_LINES

Turns = Literal["all", "last"]
Truncated = Literal["drop", "keep"]


@dataclass(frozen=True, kw_only=True)
class RegenerateConfig:
    input: tuple[str, ...]
    """Files (JSON Lines or Parquet), folders or globs of them, or datasets saved on disk."""
    output: str
    """The JSON Lines file to write."""
    turns: Turns = "all"
    """Answer every turn of a chat anew, or the last one only, after the answers that the row has."""
    truncated: Truncated = "drop"
    """What becomes of a chat with an answer that reached max_new_tokens."""
    max_new_tokens: int = 2048
    """Longest answer, in tokens."""
    temperature: float = 0.0
    """0: the likeliest tokens; else as the target is served."""
    top_k: int = 0
    """Only the k likeliest tokens; 0: all."""
    top_p: float = 1.0
    """Only the likeliest tokens that sum to this share; 1: all."""
    seed: int = 0
    """Each answer has a seed of its own, made from this one, its row and its turn."""
    max_failed: float = 0.05
    """Share of failed rows above which nothing is published."""
    overwrite: bool = False
    """Replace the file at `output`."""
    retry_failed: bool = False
    """Answer the rows again that failed in an earlier, unfinished run."""

    def __post_init__(self) -> None:
        if not self.input:
            raise ValueError("no input: name at least one file, folder or glob")
        if Path(self.output).suffix not in JSON_LINES:
            raise ValueError(
                f"output {self.output} must end in one of {', '.join(JSON_LINES)}: it is JSON Lines"
            )
        _require_positive("max_new_tokens", self.max_new_tokens)
        if not self.temperature >= 0:
            raise ValueError(f"temperature divides the logits and is at least 0, got {self.temperature}")
        if self.top_k < 0:
            raise ValueError(f"top_k counts tokens, 0 for all, got {self.top_k}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p is a share above 0 and at most 1, got {self.top_p}")
        if not 0 <= self.max_failed < 1:
            raise ValueError(f"max_failed must be at least 0 and below 1, got {self.max_failed}")

    @property
    def identity(self) -> dict[str, Any]:
        """What decides the answers, by the names of the options."""
        names = ("turns", "truncated", "max_new_tokens", "temperature", "top_k", "top_p", "seed")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """An OpenAI-compatible server, or several with the same model."""

    urls: tuple[str, ...]
    """Such as http://localhost:8000; /v1 is added where it is missing."""
    template_arguments: Mapping[str, Any] = field(default_factory=dict)
    """Sent as chat_template_kwargs."""
    request: Mapping[str, Any] = field(default_factory=dict)
    """More fields of each request."""
    concurrency: int = 32
    """Answers that are waited for at once."""
    timeout_s: float = 600.0
    """Longest time for one reply, from the connection to its last byte, in seconds."""
    deadline_s: float = 1800.0
    """Longest time for one answer, all attempts and waits together, in seconds."""
    attempts: int = 5
    """Attempts at an answer for which the server reports a fault of its own, or sends nonsense."""

    def __post_init__(self) -> None:
        for url in self.urls:
            _require_url(url)
        for name in ("concurrency", "timeout_s", "deadline_s", "attempts"):
            _require_positive(name, getattr(self, name))

    @property
    def bases(self) -> Sequence[str]:
        """The addresses with /v1, without a slash at the end."""
        bare = [url.rstrip("/") for url in self.urls]
        return [url if url.endswith("/v1") else f"{url}/v1" for url in bare]


def _require_positive(name: str, value: int | float) -> None:
    if not value > 0:
        raise ValueError(f"{name} must be above 0, got {value}")


def _require_url(url: str) -> None:
    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise ValueError(
            "a server's address holds a login: it would end in logs; put the key into the environment"
        )
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"server {url!r} is no address such as http://localhost:8000")
