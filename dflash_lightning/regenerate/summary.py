"""What became of all rows, for people.

in    the records in order
out   a table whose lines add up, with the first places of each reason
law   ok + truncated + skipped + failed = rows
"""

from collections import Counter
from dataclasses import dataclass, field

from dflash_lightning.regenerate.chats import Record, Status

EXAMPLES = 3  # places shown per reason
_ORDER: tuple[Status, ...] = ("ok", "truncated", "skipped", "failed")


@dataclass
class Summary:
    rows: Counter[Status] = field(default_factory=Counter)
    reasons: Counter[tuple[Status, str]] = field(default_factory=Counter)
    examples: dict[tuple[Status, str], list[str]] = field(default_factory=dict)
    written: int = 0
    """Rows in the output."""
    answers: int = 0
    tokens: int = 0
    retokenized: int = 0
    """Answers whose text gives other tokens than the target generated."""

    def add(self, record: Record) -> None:
        self.rows[record.status] += 1
        self.written += record.chat is not None
        self.answers += record.answers
        self.tokens += record.tokens
        self.retokenized += record.retokenized
        if record.reason:
            key = record.status, record.reason
            self.reasons[key] += 1
            shown = self.examples.setdefault(key, [])
            if len(shown) < EXAMPLES:
                shown.append(f"{record.place}: {record.detail:.300}" if record.detail else record.place)

    @property
    def read(self) -> int:
        return self.rows.total()

    def table(self) -> str:
        lines = [("ok", self.rows["ok"])] + [
            (f"{status}: {reason}", number)
            for status in _ORDER
            for (of, reason), number in self.reasons.most_common()
            if of == status
        ]
        width = max(len(name) for name, _ in [*lines, ("", 0)])
        shown = [f"{name:<{width}} {number:>12,}" for name, number in [*lines, ("rows", self.read)]]
        shown.insert(-1, "-" * (width + 13))
        return "\n".join(shown)

    def places(self) -> str:
        """The first places of each reason."""
        shown = []
        for (status, reason), number in self.reasons.most_common():
            shown += [f"  {number} x {status}: {reason}"]
            shown += [f"      {place}" for place in self.examples[status, reason]]
        return "\n".join(shown)
