"""The result of decoding one prompt, whichever way it was decoded."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from dflash_lightning.decoding.acceptance import tau

OnRound = Callable[[Sequence[int], int], None]
"""Called once after the prefill, then once per round: the tokens just committed, and how many of them were
drafts. These come first; behind them stands the target's own token, unless a drafted stop ended the text."""

OnDraft = Callable[[Sequence[int]], None]
"""Called once per round with the drafts that the target is about to judge."""


@dataclass(frozen=True)
class Decoded:
    """Generated tokens, without the prompt, and how many rounds they took."""

    token_ids: tuple[int, ...]
    """At most max_new_tokens; ends with a stop token if one came."""
    rounds: tuple[int, ...]
    """Tokens each target pass behind the prefill added; their sum is one less than len(token_ids)."""
    ended_by_draft: bool = False
    """The last token is a drafted stop, so that the last round holds none of the target's own."""

    @property
    def drafted(self) -> int:
        """Tokens that were drafts: all but the prefill's and the target's own one of each round."""
        return sum(self.rounds) - len(self.rounds) + self.ended_by_draft

    @property
    def tau(self) -> float:
        """Acceptance length: tokens per round; NaN where the prefill's token was all."""
        return tau(self.rounds)


class Transcript:
    """Collects committed tokens until the limit or the first stop token, whichever comes first."""

    def __init__(self, max_new_tokens: int, stop_ids: Collection[int], on_round: OnRound | None) -> None:
        self._limit = max_new_tokens
        self._stop_ids = frozenset(stop_ids)
        self._on_round = on_round
        self._tokens: list[int] = []
        self._counts: list[int] = []
        self._stopped = self._ended_by_draft = False

    @property
    def left(self) -> int:
        """Tokens that may still be added; 0 once a stop token came."""
        return 0 if self._stopped else self._limit - len(self._tokens)

    def add(self, committed: Sequence[int]) -> None:
        """Drafts that stood and behind them the target's own token, the last.

        Only these are searched for a stop: nothing that was merely drafted can end the text.
        """
        stops = [index for index, token in enumerate(committed) if token in self._stop_ids]
        kept = list(committed[: stops[0] + 1] if stops else committed)
        self._stopped = bool(stops)
        self._ended_by_draft = len(kept) < len(committed)
        self._tokens += kept
        self._counts.append(len(kept))
        if self._on_round is not None:
            self._on_round(kept, min(len(kept), len(committed) - 1))

    def result(self) -> Decoded:
        return Decoded(tuple(self._tokens), tuple(self._counts[1:]), ended_by_draft=self._ended_by_draft)
