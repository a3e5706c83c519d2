"""Entry point. The first word decides: fit, validate and test go to LightningCLI, the rest to commands/.

Each command is imported only when named: importing Lightning takes seconds that `--help` should not cost.
"""

import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module

from dflash_lightning.parser_words import reasons

COMMANDS = {
    "prepare": "chats to a token store; with --hidden-states also the target's states of it",
    "regenerate": "prompts to chats that the target itself answers, here or on a server; then prepare",
    "plan": "what a run will see: batches, padding, order, balance; from lengths alone, in seconds",
    "fit": "train a drafter",
    "validate": "teacher-forced loss and acceptance of a checkpoint on the held-out split",
    "test": "the same on data.test_store, rows that no checkpoint was chosen by",
    "export": "a checkpoint to the folder that servers load; converts between their formats",
    "generate": "draft and verify one prompt before your eyes",
    "evaluate": "acceptance lengths and speed on many prompts, beside plain decoding and prompt lookup",
    "report": "what a run's logs say: loss bands, direction, stalls, and which steps to look at",
    "checkpoints": "list, verify, prune or fetch what lies in a bucket or folder",
}
TRAINER_COMMANDS = ("fit", "validate", "test")

HELP = """usage: python cli.py COMMAND [options]

Train DFlash drafters for speculative decoding: chats in, a checkpoint that servers load out.

{commands}

Start with the demo: make demo. Then, for your own target:
  python cli.py prepare --input chats.jsonl --target my-model --output data/mine
  python cli.py plan --config configs/qwen3_8b.yaml
  python cli.py fit --config configs/qwen3_8b.yaml
  python cli.py export --checkpoint runs/qwen3_8b/checkpoints --output drafters/mine
  python cli.py evaluate --target my-model --drafter drafters/mine --prompts heldout.jsonl

A second --config is laid over the first (configs/callbacks/ has examples), and any setting can be given
on the command line: --model.lr 3e-4. fit --config ... --print_config shows what would run.
`python cli.py COMMAND --help` explains the options of each."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the process's exit code."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    name = arguments[0] if arguments else "--help"
    if name in ("-h", "--help"):
        print(HELP.format(commands="\n".join(f"  {n:<11} {text}" for n, text in COMMANDS.items())))
        return 0
    if name not in COMMANDS:
        close = get_close_matches(name, COMMANDS, n=1)
        guess = f"; did you mean {close[0]}?" if close else "."
        print(f"unknown command {name!r}{guess} There are: {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    try:
        return _run(name, arguments)
    except _for_people() as error:
        if os.environ.get("DFLASH_TRACEBACK"):
            raise
        print(f"\n{name}: {reasons(str(error))}\n(DFLASH_TRACEBACK=1 shows where)", file=sys.stderr)
        return 1


def _for_people() -> tuple[type[Exception], ...]:
    """What a user wrote, a file that is not there, a store that refuses: one message and no traceback.

    Python asks only when something was raised, so that starting costs no import.
    """
    from dflash_lightning.checkpoint.stores.errors import StoreError

    lightning = sys.modules.get("lightning.fabric.utilities.exceptions")  # where it was imported, else not
    theirs = () if lightning is None else (lightning.MisconfigurationException,)
    return ValueError, OSError, StoreError, *theirs


def _run(name: str, arguments: Sequence[str]) -> int:
    if name in TRAINER_COMMANDS:
        return int(import_module("dflash_lightning.lightning_cli").main(arguments))
    return int(import_module(f"dflash_lightning.commands.{name}").main(arguments[1:]) or 0)
