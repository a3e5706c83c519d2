"""`python cli.py prepare`: chats -> token store. Parses, calls data/prepare.py, prints."""

import os
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jsonargparse import ArgumentParser, Namespace

from dflash_lightning.commands.bytes_progress import bytes_progress
from dflash_lightning.commands.chat_options import add_template, add_template_arguments, named_template
from dflash_lightning.commands.teaching_help import TeachingHelp
from dflash_lightning.commands.writable import require_folder
from dflash_lightning.short_errors import ShortErrors

if TYPE_CHECKING:  # imported when the work starts: `--help` must not wait for transformers and datasets
    from dflash_lightning.data.prepare_config import PrepareConfig

DESCRIPTION = """\
Turn chats into a token store, the input of `fit`: token ids by the target's chat template, and a loss mask
that is 1 on the tokens that the target itself would have generated.

A row is one of
  {"messages": [{"role": "user", "content": ...}, ...]}         as OpenAI
  {"conversations": [{"from": "human", "value": ...}, ...]}     as ShareGPT
  {"input_ids": [...], "loss_mask": [...]}                      ready tokens

Example:
  python cli.py prepare --input chats.jsonl --target smollm2-135m-instruct \\
      --output data/demo --max-length 1024

The answers should be the target's own (same template, same thinking mode as in serving), else the drafter
learns to predict another model. Rows that cannot be used are counted by reason; kept + skipped = read.
"""
INPUT = "JSON Lines or Parquet files, folders or globs of them, Hugging Face datasets saved on disk"
SHARE = "rows held out, chosen by a hash of their tokens: equal rows are on one side; 1: all, for `test`"
HIDDEN_STATES = "other work: the target's hidden states of a token store; see --hidden-states --help"
HELD_OUT = "inputs held out as a whole, instead of a share; equal rows of --input are skipped"


def main(args: Sequence[str] | None = None) -> int:
    """Exit code: 0, or 1 with one message on standard error when the input cannot be used."""
    words = sys.argv[1:] if args is None else list(args)
    if "--hidden-states" in words:
        from dflash_lightning.commands import prepare_hidden_states

        return prepare_hidden_states.main(words)
    options = make_parser().parse_args(words)
    # Rows go one by one, and the tokenizer's threads break later forks.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        _prepare(options)
    except (ValueError, OSError) as error:
        print(f"prepare: {error}", file=sys.stderr)
        return 1
    return 0


def make_parser() -> ArgumentParser:
    parser = ShortErrors(prog="python cli.py prepare", description=DESCRIPTION, formatter_class=TeachingHelp)
    add = parser.add_argument
    add("--config", action="config", help="YAML file of any of these options (input, max_length, ...)")
    add("--input", nargs="+", required=True, metavar="PATH", help=INPUT)
    add(
        "--target",
        required=True,
        help="the target: folder, hub name, or smollm2-135m-instruct",
    )
    add("--output", required=True, metavar="DIR", help="folder of the token store to write")
    add_template(parser)
    add_template_arguments(parser)
    add("--turns", choices=["all", "last"], default="all", help="train on every answer of a chat or the last")
    add("--max-length", type=int, metavar="TOKENS", help="longer rows are skipped, and counted")
    add("--truncate", action="store_true", help="cut rows at --max-length instead of skipping them; counted")
    add("--validation-share", type=float, default=0.02, metavar="SHARE", help=SHARE)
    add("--validation-input", nargs="*", default=[], metavar="PATH", help=HELD_OUT)
    add("--max-skipped", type=float, default=0.05, metavar="SHARE", help="above it, nothing is written")
    add("--workers", type=int, metavar="N", help="processes; default: as input size and cores suggest")
    add("--overwrite", action="store_true", help="replace the token store at --output")
    # Read here for the help only: main has looked for it.
    add("--hidden-states", action="store_true", help=HIDDEN_STATES)
    return parser


def _prepare(options: Namespace) -> None:
    import datasets

    from dflash_lightning.data.prepare import prepare
    from dflash_lightning.target.loading import load_stop_ids, load_tokenizer

    require_folder(f"--output {options.output}", options.output, replaces=True)
    config = _config(options)
    tokenizer = load_tokenizer(options.target)
    datasets.disable_progress_bars()  # one bar is enough: ours covers what takes long
    started = time.monotonic()
    with bytes_progress("tokenizing") as on_progress:
        manifest, report = prepare(
            config, tokenizer, target_stop_ids=load_stop_ids(options.target), on_progress=on_progress
        )
    print(report.table())
    if report.truncated:
        print(f"{report.truncated:,} of the kept rows were cut at {config.max_length} tokens")
    if report.num_skipped:
        print(f"\nskipped, with the first places:\n{report.top_reasons(10)}")
    tokens, supervised = sum(manifest.tokens.values()), sum(manifest.supervised.values())
    print(
        f"\n{config.output}: {tokens:,} tokens, {supervised:,} of them supervised, "
        f"content {manifest.digest[:12]}, in {time.monotonic() - started:.1f} s"
    )
    if told := _beyond_context(config.output, options.target):
        print(told)
    if not manifest.kept["validation"]:
        print("no row was held out for validation: raise --validation-share, or name --validation-input")


def _beyond_context(store: str, target: str) -> str | None:
    """What `fit` would refuse. A tokenizer's folder without a model's config tells no context."""
    from dflash_lightning.data.store import TokenStore
    from dflash_lightning.target.loading import load_config

    try:
        context = load_config(target).max_position_embeddings
    except (OSError, ValueError, AttributeError):
        return None
    kept = TokenStore.open(store)
    splits = [kept.samples("train").lengths, kept.samples("validation").lengths]
    longer = sum(int((lengths > context).sum()) for lengths in splits)
    longest = max(int(lengths.max(initial=0)) for lengths in splits)
    if not longer:
        return None
    return (
        f"{longer:,} rows are longer than the {context:,} positions of {target} (the longest has "
        f"{longest:,} tokens), which `fit` refuses: prepare again with --max-length {context}, "
        "and --truncate to cut rows instead of skipping them"
    )


def _config(options: Namespace) -> "PrepareConfig":
    from dflash_lightning.data.prepare_config import PrepareConfig

    return PrepareConfig(
        input=tuple(options.input),
        output=options.output,
        template=named_template(options),
        template_arguments=options.template_arguments,
        stop_tokens=tuple(options.stop_token),
        turns=options.turns,
        max_length=options.max_length,
        truncate=options.truncate,
        validation_share=options.validation_share,
        validation_input=tuple(options.validation_input),
        max_skipped=options.max_skipped,
        workers=options.workers,
        overwrite=options.overwrite,
    )
