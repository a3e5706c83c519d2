"""What a verdict is."""

from dataclasses import dataclass, field

KINDS = (
    "instability",
    "checkpoint",
    "sampling artefact",
    "periodic",
    "mix",
    "several modes",
    "steady",
    "unknown",
)
"""Most important first: what can ruin a run, what costs time, what misleads the eye, what is harmless."""


@dataclass(frozen=True)
class Verdict:
    """One finding about a run, in words, with the figures behind it."""

    kind: str
    """One of KINDS."""
    headline: str
    """One sentence."""
    evidence: list[str] = field(default_factory=list)
    """Figures behind it, one sentence each."""
    steps: list[int] = field(default_factory=list)
    """Steps to look at, rising; empty where no single step matters."""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"no verdict is called {self.kind!r}; choose from {', '.join(KINDS)}")
