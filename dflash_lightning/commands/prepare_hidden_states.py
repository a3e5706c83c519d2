"""`python cli.py prepare --hidden-states`: token store -> the target's hidden states on disk. Parses, calls
target/stored/, prints."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jsonargparse import SUPPRESS, ArgumentParser, Namespace

from dflash_lightning.commands.bytes_progress import bytes_progress, sized
from dflash_lightning.commands.teaching_help import TeachingHelp
from dflash_lightning.commands.writable import require_folder
from dflash_lightning.plan_view.words import split_words
from dflash_lightning.short_errors import ShortErrors

if TYPE_CHECKING:  # imported when the work starts: `--help` must not wait for torch
    from dflash_lightning.commands.hidden_states_settings import StatesSettings
    from dflash_lightning.target.stored.manifest import StatesManifest

DESCRIPTION = """\
Run the target once over a token store and keep what the drafter reads of it, so that training need not run
the target again: for small data or many epochs. Every sample of train and validation is written.

  python cli.py prepare --hidden-states --config configs/demo.yaml --output data/demo-states
  python cli.py fit --config configs/demo.yaml --model.hidden_states data/demo-states

With --config target, precision, tapped layers and token store are those of the run, further --config files
and --data.store data/other included; the options below win over it. Without, give --target, --store, --taps.

It takes (taps + 1 if --final) x hidden size x 2 bytes for each token in bfloat16: for Qwen3-8B and five taps
40 KiB a token, 40 GB for a million tokens. The size is said, and the disk is looked at, before it starts.
A run that was killed goes on behind its last whole shard when it is started again with the same words.
"""
FINAL = "keep the final norm's outputs too, which distillation needs (default: as the YAML's objective)"
MAX_TOKENS = "rows x padded length of one forward pass, at most"
VERIFY = "write nothing: read every byte of --output and compare checksums"


def main(args: Sequence[str] | None = None) -> int:
    """Exit code 0. Raises ValueError and OSError where something makes no sense: main.py prints them."""
    own, fit = split_words(sys.argv[1:] if args is None else args)
    options = make_parser().parse_args(own)
    if options.verify:
        return _verify(options)
    from dflash_lightning.commands.hidden_states_settings import read_states_settings

    _write(read_states_settings(options, fit), options)
    return 0


def make_parser() -> ArgumentParser:
    # What was not given is absent, so that the YAML decides.
    parser = ShortErrors(
        prog="python cli.py prepare --hidden-states",
        description=DESCRIPTION,
        formatter_class=TeachingHelp,
        argument_default=SUPPRESS,
    )
    add = parser.add_argument
    add("--hidden-states", action="store_true", help="this work of `prepare`, instead of tokenising")
    # Read here for the help only: split_words has taken them out.
    add("--config", metavar="YAML", help="settings of `fit`; a second file is laid over the first")
    add("--output", metavar="DIR", help="folder to write (default: model.hidden_states of the YAML)")
    add("--store", metavar="DIR", help="token store (default: data.store of the YAML)")
    add("--target", metavar="NAME", help="folder or name of the target (default: the YAML's)")
    add("--taps", metavar="IDS", help="tapped layers, 0-based, such as 1,9,17 (default: the YAML's)")
    add("--dtype", choices=["bfloat16", "float32", "float16"], help="precision (default: the YAML's)")
    add("--final", action="store_true", help=FINAL)
    add("--max-tokens", type=int, default=16_384, metavar="N", help=MAX_TOKENS)
    add("--shard-gib", type=float, default=1.0, metavar="GIB", help="size of a file, at most")
    add("--device", metavar="NAME", help="such as cpu or cuda:1 (default: cuda where there is one)")
    add("--verify", action="store_true", default=False, help=VERIFY)
    return parser


def _write(settings: "StatesSettings", options: Namespace) -> None:
    from dflash_lightning.commands.hidden_states_settings import load_for, planned
    from dflash_lightning.target.stored.folder import UnfinishedStates
    from dflash_lightning.target.stored.writing import write_states

    require_folder(f"--output {settings.output}", settings.output, replaces=True)
    manifest, layout = planned(settings)
    print(_size_line(settings.output, manifest, int(layout.lengths.sum())), flush=True)
    started = time.monotonic()
    with UnfinishedStates(Path(settings.output), manifest, layout) as folder:
        if begun := layout.num_shards - len(list(folder.missing())):
            print(
                f"{begun} of {layout.num_shards} shards are there already: going on behind them", flush=True
            )
        target = load_for(settings)
        with bytes_progress("writing") as on_progress:
            done = write_states(
                folder,
                target,
                settings.ids_of,
                max_tokens=settings.max_tokens,
                place_of=settings.place_of,
                on_progress=on_progress,
            )
    print(
        f"{settings.output}: {sum(done.samples.values()):,} samples in {len(done.shards)} shards, "
        f"{sized(sum(done.shards))}, in {time.monotonic() - started:.1f} s. To train with them: "
        f"--model.hidden_states {settings.output}"
    )


def _size_line(output: str, manifest: "StatesManifest", tokens: int) -> str:
    identity, each = manifest.identity, manifest.token_bytes
    return (
        f"{output}: {tokens:,} tokens x {each:,} bytes = {sized(tokens * each)} "
        f"({identity.dtype}; layers {', '.join(map(str, identity.taps))}"
        f"{' and final states' if identity.final else ''})"
    )


def _verify(options: Namespace) -> int:
    from dflash_lightning.target.stored.reading import StoredStates

    if "output" not in options:
        raise ValueError("--verify needs --output, the folder of hidden states to read")
    stored = StoredStates.open(options.output)
    with bytes_progress("reading") as on_progress:
        stored.verify(on_progress)
    size = sum(stored.manifest.shards)
    print(
        f"{options.output}: {sum(stored.manifest.samples.values()):,} samples, {sized(size)}, all as written"
    )
    return 0
