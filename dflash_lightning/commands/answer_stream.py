"""The answer of `generate` as it comes: who wrote what, in colours where the output is a terminal.

in    the tokens of each round, and the drafts that were made for it
out   text on standard output
law   the characters are those of the whole answer, whatever the colours; half a character waits for
      the other, as long as the answer goes on
"""

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Literal

Colour = Literal["auto", "always", "never"]
RESET = "\033[0m"
DRAFTED, REJECTED = "\033[32m", "\033[31;9m"  # green; red and struck through
HALF = "\ufffd"  # what a tokenizer gives for bytes that are no whole character


def wants_colour(choice: Colour, *, is_terminal: bool, environment: Mapping[str, str]) -> bool:
    """auto: on a terminal, unless NO_COLOR is set to anything (no-color.org) or the terminal is dumb."""
    if choice != "auto":
        return choice == "always"
    return is_terminal and not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"


class AnswerStream:
    """Prints committed tokens; the drafts that stood differ in colour from the target's own tokens."""

    def __init__(
        self,
        tokenizer: Any,
        *,
        colour: Colour = "never",
        show_rounds: bool = False,
        show_rejected: bool = False,
    ) -> None:
        self._tokenizer = tokenizer
        self._colours = wants_colour(colour, is_terminal=sys.stdout.isatty(), environment=os.environ)
        self._bar = "|" if show_rounds else ""
        self._show_rejected = show_rejected
        self._ids: list[int] = []
        self._shown = 0
        self._drafts: Sequence[int] = ()

    def drafted(self, tokens: Sequence[int]) -> None:
        """The drafts that the next round judges."""
        self._drafts = tokens

    def write(self, tokens: Sequence[int], drafted: int) -> None:
        """The tokens of a round: first the `drafted` ones that stood, then the target's own.

        A drafted stop has none of the target's behind it, and nobody judged the drafts that came after.
        """
        self._add(tokens[:drafted], DRAFTED)
        own = tokens[drafted:]
        rejected = self._drafts[drafted:] if own else ()
        if rejected and self._show_rejected:
            text = self._tokenizer.decode(list(rejected), skip_special_tokens=True)
            print(f"{REJECTED}{text}{RESET}" if self._colours else f"[-{text}-]", end="")
        self._drafts = ()
        self._add(own, "")
        print(end=self._bar, flush=True)

    def close(self) -> None:
        """After the last round: what still waits for its other half, which does not come."""
        self._show(self._text(), "")
        sys.stdout.flush()

    def _add(self, tokens: Sequence[int], colour: str) -> None:
        self._ids += tokens
        if tokens:
            self._show(self._text().rstrip(HALF), colour)

    def _text(self) -> str:
        return str(self._tokenizer.decode(self._ids, skip_special_tokens=True))

    def _show(self, text: str, colour: str) -> None:
        """What is new in the text of the answer so far."""
        if len(text) > self._shown:
            new, self._shown = text[self._shown :], len(text)
            print(f"{colour}{new}{RESET}" if colour and self._colours else new, end="")
