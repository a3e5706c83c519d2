"""Rows -> token rows of the store.

in    one row as read (bytes of a JSON line, or a mapping)
out   TokenRow(input_ids [S], loss_mask [S]) or the RowError that says why not
law   S <= max_length, every id is in the vocabulary, and at least one anchor is possible: two supervised
      tokens in a row (spec/dflash.md 2.4)
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dflash_lightning.data.conversations import Chat, ReadyTokens, RowError, parse_row
from dflash_lightning.data.loss_mask import Turns, supervise
from dflash_lightning.data.sources import Chunk
from dflash_lightning.data.template import ChatFormat


@dataclass(frozen=True)
class TokenRow:
    input_ids: npt.NDArray[np.int32]
    """[S]"""
    loss_mask: npt.NDArray[np.uint8]
    """[S], 1 = the target would have generated this token."""
    truncated: bool = False

    @property
    def supervised(self) -> int:
        return int(self.loss_mask.sum())


@dataclass(frozen=True, kw_only=True)
class Encoder:
    """Turns rows into tokens; holds no file and no state, so that any process can do any part of the work."""

    form: ChatFormat | None
    """None: the inputs start with ready tokens, so no template was looked for."""
    vocab_size: int
    turns: Turns = "all"
    max_length: int | None = None
    truncate: bool = False

    def encode_chunk(self, chunk: Chunk) -> "EncodedChunk":
        return EncodedChunk(chunk.source, chunk.numbers, list(self._outcomes(chunk.rows)), chunk.num_bytes)

    def _outcomes(self, rows: Sequence[object]) -> Iterator[TokenRow | RowError]:
        for row in rows:
            try:
                yield self.encode(row)
            except RowError as error:
                yield RowError(error.reason, error.detail)  # without traceback: it holds the whole row

    def encode(self, row: object) -> TokenRow:
        """Raises RowError where the row cannot be used."""
        parsed = parse_row(parse_json(row) if isinstance(row, bytes) else row)
        if isinstance(parsed, ReadyTokens):
            ids, mask = parsed.input_ids, parsed.loss_mask
        else:
            ids, mask = (np.asarray(part, np.int64) for part in self._supervise(parsed))
        if len(ids) and (ids.min() < 0 or ids.max() >= self.vocab_size):
            worst = int(ids.max() if ids.max() >= self.vocab_size else ids.min())
            raise RowError(
                "a token id is outside the target's vocabulary",
                f"id {worst}, vocabulary {self.vocab_size}: tokenised for another target",
            )
        return self._fit(ids.astype(np.int32), mask.astype(np.uint8))

    def _supervise(self, chat: Chat) -> tuple[list[int], list[int]]:
        if self.form is None:
            raise RowError("a chat, where every input starts with ready tokens", "prepare them apart")
        return supervise(chat, self.form, turns=self.turns)

    def _fit(self, ids: npt.NDArray[np.int32], mask: npt.NDArray[np.uint8]) -> TokenRow:
        limit = len(ids) if self.max_length is None else self.max_length
        if len(ids) > limit and not self.truncate:
            raise RowError(
                "longer than --max-length", f"{len(ids)} > {limit} tokens; --truncate cuts instead"
            )
        row = TokenRow(ids[:limit], mask[:limit], truncated=len(ids) > limit)
        if not (row.loss_mask[:-1] & row.loss_mask[1:]).any():
            where = f"in its first {limit} tokens" if row.truncated else f"in {len(ids)} tokens"
            raise RowError("no two supervised tokens in a row, so no anchor", where)
        return row


@dataclass(frozen=True)
class EncodedChunk:
    """What became of the rows of one Chunk."""

    source: int
    numbers: Sequence[int]
    outcomes: Sequence[TokenRow | RowError]
    num_bytes: int


def parse_json(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:  # ValueError: bad JSON and bad UTF-8 alike
        raise RowError("broken JSON", str(error)) from error
