"""`callbacks:` in a later file, or on the command line, replaces the earlier list: all of it.

in    words of a command line
out   the same words, with the list emptied in front of each that gives a new one
law   where nothing was listed before, nothing changes

The parser lays the entries of two lists of equal length over each other, so that an entry of the same class
would silently keep what an earlier file said about another run's folder.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

NAME = "--trainer.callbacks"
EMPTY = f"{NAME}=[]"
FILES = ("--config", "-c")


def with_fresh_lists(words: Sequence[str]) -> list[str]:
    """Files that cannot be read are left to the parser, which says so better."""
    return [word for i in range(len(words)) for word in _renewed(words, i)]


def _renewed(words: Sequence[str], at: int) -> Iterator[str]:
    option, value = option_at(words, at)
    if option == NAME or (option in FILES and _lists_callbacks(value)):
        yield EMPTY
    yield words[at]


def option_at(words: Sequence[str], at: int) -> tuple[str, str]:
    """--option=value and --option value -> the two; a missing value is empty."""
    option, has_value, value = words[at].partition("=")
    return option, value if has_value else "".join(words[at + 1 : at + 2])


def _lists_callbacks(path: str) -> bool:
    try:
        content: Any = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return False
    trainer = content.get("trainer") if isinstance(content, dict) else None
    return isinstance(trainer, dict) and "callbacks" in trainer
