"""A parser that answers a wrong word with one message, and the word that was probably meant.

law   the message is what stands last and alone: no list of a hundred options above it, no account of types
      that nobody meant
"""

import difflib
import inspect
import re
import textwrap
from collections.abc import Iterable
from importlib import import_module
from typing import NoReturn

from jsonargparse import ArgumentParser

from dflash_lightning.parser_words import reasons

UNKNOWN_WORDS = re.compile(r"unrecognized arguments: (.*)", re.DOTALL)
UNKNOWN_KEY = re.compile(r"does not accept option '([^']+)'")
UNKNOWN_CLASS = re.compile(r"Expected a dot import path string: (\S+)")
UNKNOWN_ARGUMENT = re.compile(r"given class_path '([\w.]+)':\s+Option '(\w+)' is not accepted")


class ShortErrors(ArgumentParser):
    """jsonargparse's ArgumentParser, for people who mistype."""

    def print_usage(self, file: object = None) -> None:
        """Not in front of an error; `--help` shows it."""

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        asked = getattr(ex, "subcommand_parser", None) or self
        told = shortened(message) + meant(message, asked._option_string_actions, self.class_names())
        super().error(told, ex)

    def class_names(self) -> Iterable[str]:
        """Those that a `class_path` may name in short."""
        return ()


def shortened(message: str) -> str:
    """What is wrong with a key, without the types that it was tried as."""
    key, _, account = message.partition(":\n")
    told = reasons(textwrap.dedent(account))
    return message if told == textwrap.dedent(account) else f"{key}:\n{textwrap.indent(told, '  ')}"


def meant(message: str, options: Iterable[str], classes: Iterable[str] = ()) -> str:
    """Behind a message about an option, a key, a class or an argument that nobody knows: those that look most
    like it, or nothing."""
    known = [option for option in options if option.startswith("--")]
    found = UNKNOWN_WORDS.search(message)
    words = [word.split("=", 1)[0] for word in found[1].split() if word.startswith("--")] if found else []
    words += [f"--{key}" for key in UNKNOWN_KEY.findall(message)]
    lines = [_like(word, known) for word in words]
    lines += [_like(name, classes) for name in UNKNOWN_CLASS.findall(message)]
    lines += [_arguments_of(path) for path, _ in UNKNOWN_ARGUMENT.findall(message)]
    return "".join(f"\n{line}" for line in lines if line)


def _like(word: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(known), n=2, cutoff=0.75)
    names = " or ".join(name.lstrip("-") for name in close)
    return f"{word.lstrip('-')}: did you mean {names}?" if close else ""


def _arguments_of(path: str) -> str:
    module, _, name = path.rpartition(".")
    takes = list(inspect.signature(getattr(import_module(module), name)).parameters)
    return f"{name} takes {', '.join(takes) or 'no arguments'}"
