"""A parser that answers a wrong word with one message, and the word that was probably meant.

law   the message is what stands last and alone: no list of a hundred options above it
"""

import difflib
import re
from collections.abc import Iterable
from typing import NoReturn

from lightning.pytorch.cli import LightningArgumentParser

UNKNOWN_WORDS = re.compile(r"unrecognized arguments: (.*)", re.DOTALL)
UNKNOWN_KEY = re.compile(r"does not accept option '([^']+)'")


class ShortErrors(LightningArgumentParser):
    """LightningArgumentParser, for people who mistype."""

    def print_usage(self, file: object = None) -> None:
        """Not in front of an error; `--help` shows it."""

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        asked = getattr(ex, "subcommand_parser", None) or self
        super().error(message + meant(message, asked._option_string_actions), ex)


def meant(message: str, options: Iterable[str]) -> str:
    """Behind a message about words of the command line, or a key of a YAML file, that nobody knows: the
    options that look most like them, or nothing."""
    found = UNKNOWN_WORDS.search(message)
    words = [word.split("=", 1)[0] for word in found[1].split() if word.startswith("--")] if found else []
    words += [f"--{key}" for key in UNKNOWN_KEY.findall(message)]
    known = [option for option in options if option.startswith("--")]
    close = {word: difflib.get_close_matches(word, known, n=2, cutoff=0.75) for word in words}
    lines = [
        f"\n{word.lstrip('-')}: did you mean {' or '.join(name.lstrip('-') for name in names)}?"
        for word, names in close.items()
        if names
    ]
    return "".join(lines)
