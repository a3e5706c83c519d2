"""A parser that answers a wrong word with one message, and the word that was probably meant.

law   the message is what stands last and alone: no list of a hundred options above it, no account of types
      that nobody meant
"""

import difflib
import inspect
import re
import sys
import textwrap
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import yaml
from jsonargparse import ArgumentParser

from dflash_lightning.parser_words import reasons
from dflash_lightning.replacing_lists import FILES, option_at

UNKNOWN_WORDS = re.compile(r"unrecognized arguments: (.*)", re.DOTALL)
UNKNOWN_KEY = re.compile(r"does not accept option '([^']+)'")
UNKNOWN_CLASS = re.compile(r"Expected a dot import path string: (\S+)")
UNKNOWN_ARGUMENT = re.compile(r"given class_path '([\w.]+)':\s+Option '(\w+)' is not accepted")


class ShortErrors(ArgumentParser):
    """jsonargparse's ArgumentParser, for people who mistype."""

    def parse_args(self, args: Sequence[str] | None = None, **more: Any) -> Any:  # type: ignore[override]
        words = sys.argv[1:] if args is None else args
        for path in config_files(words):
            if broken := broken_yaml(path):
                self.error(broken)
        return super().parse_args(args, **more)

    def print_usage(self, file: object = None) -> None:
        """Not in front of an error; `--help` shows it."""

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        asked = getattr(ex, "subcommand_parser", None) or self
        told = shortened(message) + meant(message, asked._option_string_actions, self.class_names())
        super().error(told, ex)

    def class_names(self) -> Iterable[str]:
        """Those that a `class_path` may name in short."""
        return ()


def config_files(words: Sequence[str]) -> list[str]:
    """Every FILE of --config FILE, --config=FILE and -c FILE."""
    given = (option_at(words, i) for i in range(len(words)))
    return [value for option, value in given if option in FILES]


def broken_yaml(path: str) -> str | None:
    """Where a file is no YAML, and why; a parser that reads several would not say which of them."""
    try:
        yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        return f"{path}{line}: {error.problem or error.context}; it must be YAML with even indentation"
    except (OSError, ValueError, yaml.YAMLError):
        return None  # the parser says it
    return None


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
