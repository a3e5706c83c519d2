"""Where every row went.

in    the outcome of each row, in order
out   counts that add up, a table of them, and a stop when too much is left out
law   kept + skipped by reason = read; a reason is never shown without a place to look at
"""

from collections import Counter
from dataclasses import dataclass, field

from dflash_lightning.data.conversations import NO_ANSWER, RowError
from dflash_lightning.data.split import Split
from dflash_lightning.data.tokens import TokenRow

EXAMPLES = 3  # places shown per reason
HOPELESS_ROWS = 1000  # that many rows without one that can be used: do not read the rest


class TooManySkipped(ValueError):
    """More rows were left out than the user allows."""


@dataclass
class Report:
    kept: Counter[Split] = field(default_factory=Counter)
    tokens: Counter[Split] = field(default_factory=Counter)
    supervised: Counter[Split] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)
    """Reason -> the first places, as file:line, with what was found there."""
    truncated: int = 0
    max_token_id: int = -1
    read_of: Counter[int] = field(default_factory=Counter)
    """Rows read by source."""
    kept_of: Counter[int] = field(default_factory=Counter)

    @property
    def num_kept(self) -> int:
        return self.kept.total()

    @property
    def num_skipped(self) -> int:
        return self.skipped.total()

    @property
    def read(self) -> int:
        return self.num_kept + self.num_skipped

    def keep(self, row: TokenRow, split: Split, source: int) -> None:
        self.read_of[source] += 1
        self.kept_of[source] += 1
        self.kept[split] += 1
        self.tokens[split] += len(row.input_ids)
        self.supervised[split] += row.supervised
        self.truncated += row.truncated
        self.max_token_id = max(self.max_token_id, int(row.input_ids.max()))

    def skip(self, error: RowError, source: int, place: str) -> None:
        self.read_of[source] += 1
        self.skipped[error.reason] += 1
        shown = self.examples.setdefault(error.reason, [])
        if len(shown) < EXAMPLES:
            shown.append(f"{place}: {error.detail:.200}" if error.detail else place)

    def require_hope(self) -> None:
        """Stop early when nothing at the start of the input can be used. Raises TooManySkipped."""
        if not self.num_kept and self.read >= HOPELESS_ROWS:
            raise TooManySkipped(f"none of the first {self.read} rows can be used:\n{self._why()}")

    def require_enough(self, max_skipped: float) -> None:
        """Raises TooManySkipped if nothing was kept, or more than the share `max_skipped` was not."""
        if not self.num_kept:
            raise TooManySkipped(f"none of the {self.read} rows can be used:\n{self._why()}")
        share = self.num_skipped / self.read
        if share > max_skipped:
            raise TooManySkipped(
                f"{self.num_skipped} of {self.read} rows ({share:.1%}) would be skipped, more than the limit "
                f"of {max_skipped:.1%}:\n{self.top_reasons()}\nRepair the input, or raise --max-skipped"
            )

    def _why(self) -> str:
        """Why nothing can be used, and who writes the answers that are missing."""
        way_out = (
            "\nA chat without an answer has nothing to train on: `python cli.py regenerate` lets the target "
            "write one; prepare what comes out of it"
        )
        return self.top_reasons() + (way_out if NO_ANSWER in self.skipped else "")

    def top_reasons(self, count: int = 3) -> str:
        lines = []
        for reason, number in self.skipped.most_common(count):
            lines += [f"  {number} x {reason}", *(f"      {place}" for place in self.examples[reason])]
        return "\n".join(lines)

    def table(self) -> str:
        """Kept and skipped rows, which add up to the last line."""
        entries = [(f"kept for {split}", number) for split, number in sorted(self.kept.items())]
        entries += [(f"skipped: {reason}", number) for reason, number in self.skipped.most_common()]
        entries.append(("read", self.read))
        width = max(len(name) for name, _ in entries)
        lines = [f"{name:<{width}} {number:>12,}" for name, number in entries]
        lines.insert(-1, "-" * (width + 13))
        return "\n".join(lines)
