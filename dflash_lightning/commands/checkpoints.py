"""`python cli.py checkpoints`: what lies in a bucket or folder, whether it is whole, what may go."""

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jsonargparse import SUPPRESS, ArgumentParser, Namespace

from dflash_lightning.commands.bytes_progress import bytes_progress
from dflash_lightning.commands.prune_checkpoints import prune
from dflash_lightning.commands.store_options import add_store_options, store_settings
from dflash_lightning.commands.teaching_help import TeachingHelp
from dflash_lightning.short_errors import ShortErrors

if TYPE_CHECKING:  # imported when the work starts: `--help` must not wait for it
    from dflash_lightning.checkpoint.stores import ObjectStore

DESCRIPTION = """\
Look after the checkpoints under a prefix of a bucket, or in a folder.

  python cli.py checkpoints list   s3://bucket/runs/a
  python cli.py checkpoints verify s3://bucket/runs/a              reads every byte
  python cli.py checkpoints fetch  s3://bucket/runs/a/best --output ckpt
  python cli.py checkpoints prune  s3://bucket/runs/a --keep-last 2 --keep-best 1 --yes

State
  complete    the data is there, with the size of its manifest and, where the store keeps one, its checksum
  incomplete  data without a manifest (being written, or left by a kill), or a manifest without data
  corrupt     data or manifest differ from what was written; resuming skips it

Credentials come from the usual AWS chain: environment, profile, role of the machine.
"""
PRUNE = """\
Delete older checkpoints. Without --yes it only prints what would go. The newest complete one always stays,
and so does everything that is not complete. Where several runs lie there, as many best ones stay of all
together and of the newest, whose `best` is. Refused while a run is writing there.
"""
HELP = {
    "list": "one line for each checkpoint, newest first",
    "verify": "read every byte and compare it with the manifests; exit code 1 if anything is wrong",
    "prune": "delete older ones; without --yes it only says which",
    "fetch": "download one, verified, and print its path",
}


def main(args: Sequence[str] | None = None) -> int:
    """Raises ValueError, OSError and StoreError: main.py prints them."""
    options = make_parser().parse_args(args)
    chosen = options[options.action]
    if options.action == "prune":
        return prune(*_open(chosen), chosen)
    return _fetch(chosen) if options.action == "fetch" else _show(chosen, deep=options.action == "verify")


def make_parser() -> ArgumentParser:
    parser = ShortErrors(
        prog="python cli.py checkpoints", description=DESCRIPTION, formatter_class=TeachingHelp
    )
    actions = parser.add_subcommands(dest="action", required=True, metavar="ACTION")
    for name, text in HELP.items():
        actions.add_subcommand(name, _action_parser(name), help=text)
    return parser


def _action_parser(name: str) -> ArgumentParser:
    parser = ShortErrors(
        prog=f"python cli.py checkpoints {name}",
        description=PRUNE if name == "prune" else f"{HELP[name]}\n",
        formatter_class=TeachingHelp,
        argument_default=SUPPRESS,  # what has no default is absent, and the help shows none
    )
    add = parser.add_argument
    word = "s3://bucket/prefix or a folder"
    add("uri", metavar="URI", help=f"{word}; /last, /best or /step=8 after it" if name == "fetch" else word)
    if name in ("list", "verify"):
        add("--format", choices=["text", "json"], default="text", help="for people, or for programs")
    if name == "fetch":
        add("--output", metavar="DIR", default=".", help="folder for the file")
    if name == "prune":
        add("--keep-last", type=int, metavar="N", default=1, help="newest ones that stay; -1: all")
        add("--keep-best", type=int, metavar="N", default=1, help="best ones that stay; -1: all")
        add(
            "--monitor",
            metavar="NAME",
            help="metric that decides what is best (default: as the newest was saved)",
        )
        add("--mode", choices=["min", "max"], help="which values are better (default: as it was saved by)")
        add("--dry-run", action="store_true", help="only print, even with --yes")
        add("--yes", action="store_true", help="really delete")
    add_store_options(parser)
    return parser


def _open(options: Namespace) -> "tuple[ObjectStore, str]":
    from dflash_lightning.checkpoint.stores import open_store

    if "://" not in options.uri and not Path(options.uri).is_dir():
        raise FileNotFoundError(f"there is no folder {options.uri}")
    return open_store(options.uri, store_settings(options))


def _show(options: Namespace, *, deep: bool) -> int:
    from dflash_lightning.checkpoint.keeping.inventory import take_inventory
    from dflash_lightning.commands.checkpoint_table import as_text, as_values

    inventory = take_inventory(*_open(options), deep=deep)
    if options.format == "json":
        print(json.dumps(as_values(inventory), indent=2, allow_nan=False))
    elif inventory.entries:
        print(as_text(inventory, now=time.time()))
    else:
        print(f"no checkpoint lies at {options.uri}{_hint(options.uri)}")
    wrong = len(inventory.entries) - len(inventory.complete)
    return 1 if deep and (wrong or not inventory.entries) else 0


def _hint(uri: str) -> str:
    from dflash_lightning.commands.store_hint import stores_of

    found = [] if "://" in uri else stores_of(Path(uri))
    return f"; checkpoints lie in {' and '.join(found)}" if found else ""


def _fetch(options: Namespace) -> int:
    from dflash_lightning.checkpoint.resuming.fetch import fetch

    def tell(uri: str, reason: str) -> None:
        print(f"skipping {uri}: {reason}", file=sys.stderr)

    with bytes_progress("fetching") as on_progress:
        path = fetch(
            options.uri, store_settings(options), Path(options.output), on_skip=tell, on_progress=on_progress
        )
    print(path)
    return 0
