"""`python cli.py regenerate`: chats -> the same, answered by the target. Parses, starts a backend, prints."""

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jsonargparse import ArgumentParser, Namespace

from dflash_lightning.commands.chat_options import (
    add_template,
    add_template_arguments,
    require_no_template,
)
from dflash_lightning.commands.teaching_help import TeachingHelp
from dflash_lightning.commands.writable import require_file
from dflash_lightning.regenerate.key import KEY_VARIABLE
from dflash_lightning.short_errors import ShortErrors

if (
    TYPE_CHECKING
):  # torch and transformers take seconds to import: not for `--help`, nor for a server's answers
    from dflash_lightning.commands.regenerate_progress import Meter
    from dflash_lightning.regenerate.config import RegenerateConfig
    from dflash_lightning.regenerate.summary import Summary

DESCRIPTION = f"""\
Let the target answer prompts itself: the data that a drafter should learn from. Chats go in (as in `prepare`:
OpenAI messages or ShareGPT conversations, JSON Lines or Parquet) or questions (as in `evaluate`: prompt, or
turns, of which the first is asked), the same chats with the target's answers come out, in the same order; a
last question without an answer is answered, too. `prepare` reads the output.

  python cli.py regenerate --input chats.jsonl --output mine.jsonl --target my-model --device cuda
  python cli.py regenerate --input chats.jsonl --output mine.jsonl --server http://localhost:8000

--target runs the model here with Transformers. --server asks a running OpenAI-compatible server (vLLM,
SGLang, `transformers serve`), which is made for many answers at once; give several addresses of the same
model to share the work. A key that it wants stands in the environment variable {KEY_VARIABLE}.

Temperature: 0 (the default) takes the likeliest tokens, right where the target is served greedily; small
models then often fall into loops. Otherwise give the temperature and top-p that the target is served with: a
drafter learns the texts that it will meet.

A stopped or killed run goes on where it was when the same command is given again. Beside OUTPUT,
OUTPUT.status says for every input row what became of it: ok, truncated, skipped or failed, and why.
"""
INPUT = "JSON Lines or Parquet files, folders or globs of them, Hugging Face datasets saved on disk"
TRUNCATED = "a chat with an answer that reached --max-new-tokens: such an answer has no end to learn from"
TIMEOUT = "longest time for one reply of the server, from the connection to its last byte"
DEADLINE = "longest time for one answer, all attempts and waits together; a longer Retry-After stops the run"
ATTEMPTS = "attempts at an answer where the server reports a fault of its own or sends nonsense"


def main(args: Sequence[str] | None = None) -> int:
    """Exit code: 0; 1 with one message on standard error; 130 after Ctrl-C, with what is finished kept."""
    options = make_parser().parse_args(args)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        _regenerate(options)
    except (ValueError, OSError) as error:
        print(f"regenerate: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("regenerate: stopped; run the same command to go on", file=sys.stderr)
        return 130
    return 0


def make_parser() -> ArgumentParser:
    parser = ShortErrors(
        prog="python cli.py regenerate", description=DESCRIPTION, formatter_class=TeachingHelp
    )
    add = parser.add_argument
    add("--config", action="config", help="YAML file of any of these options (input, max_new_tokens, ...)")
    add("--input", nargs="+", required=True, metavar="PATH", help=INPUT)
    add("--output", required=True, metavar="FILE", help="JSON Lines file to write, such as mine.jsonl")
    add("--target", help="answer here: folder or hub name of the target, or smollm2-135m-instruct")
    add("--server", nargs="*", default=[], metavar="URL", help="answer there: such as http://localhost:8000")
    add(
        "--turns", choices=["all", "last"], default="all", help="answer every turn anew, or the last one only"
    )
    add("--max-new-tokens", type=int, default=2048, metavar="N", help="longest answer, in tokens")
    add("--truncated", choices=["drop", "keep"], default="drop", help=TRUNCATED)
    add("--temperature", type=float, default=0.0, metavar="T", help="0: greedy; else as the target is served")
    add("--top-k", type=int, default=0, metavar="K", help="only the K likeliest tokens; 0: all")
    add("--top-p", type=float, default=1.0, metavar="P", help="only the likeliest tokens that sum to P")
    add("--seed", type=int, default=0, help="every answer has its own seed, made of this, its row and turn")
    add_template_arguments(parser)
    add("--max-failed", type=float, default=0.05, metavar="SHARE", help="above it, nothing is published")
    add("--retry-failed", action="store_true", help="answer rows again that failed in an unfinished run")
    add("--overwrite", action="store_true", help="replace the file at --output")
    _add_local(parser)
    _add_server(parser)
    return parser


def _add_local(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("with --target")
    add_template(group)
    add = group.add_argument
    add(
        "--batch-size",
        type=int,
        default=32,
        metavar="N",
        help="prompts at once; halved where memory is short",
    )
    add("--dtype", choices=["float32", "bfloat16", "float16"], default="bfloat16", help="of the target")
    add("--device", default="auto", help="auto: the GPU if there is one; or cpu, cuda:1, ...")


def _add_server(parser: ArgumentParser) -> None:
    add = parser.add_argument_group("with --server").add_argument
    add("--model", metavar="NAME", help="as the server knows it; default: the only one it lists")
    add("--concurrency", type=int, default=32, metavar="N", help="answers that are waited for at once")
    add("--timeout", type=float, default=600.0, metavar="SECONDS", help=TIMEOUT)
    add("--deadline", type=float, default=1800.0, metavar="SECONDS", help=DEADLINE)
    add("--attempts", type=int, default=5, metavar="N", help=ATTEMPTS)
    add("--request", type=dict[str, Any], default={}, metavar="JSON", help="more fields of each request")


def _regenerate(options: Namespace) -> None:
    from dflash_lightning.commands.regenerate_backends import in_this_process, on_server
    from dflash_lightning.commands.regenerate_progress import progress_meter
    from dflash_lightning.regenerate.run import regenerate

    if (options.target is None) == (not options.server):
        raise ValueError("give either the --target to run here, or the --server to ask")
    if options.server:
        require_no_template(options)
    _require_writable(options.output)
    config = _config(options)
    started = time.monotonic()
    with progress_meter() as meter:
        identity, start = (on_server if options.server else in_this_process)(options, config, meter)
        summary = regenerate(config, identity, start, on_progress=meter.rows)
    _tell(summary, config.output, meter, time.monotonic() - started)


def _require_writable(given: str) -> None:
    from dflash_lightning.regenerate.publish import STATUS_SUFFIX

    output = Path(given).expanduser()
    require_file(f"--output {given}", output, makes_folders=True, replaces=True)
    status = output.with_name(output.name + STATUS_SUFFIX)
    require_file(f"{status}, beside --output {given},", status, makes_folders=True, replaces=True)


def _config(options: Namespace) -> "RegenerateConfig":
    from dflash_lightning.regenerate.config import RegenerateConfig

    same = ("output", "turns", "truncated", "max_new_tokens", "temperature", "top_k", "top_p", "seed")
    more = ("max_failed", "overwrite", "retry_failed")
    return RegenerateConfig(
        input=tuple(options.input), **{name: getattr(options, name) for name in (*same, *more)}
    )


def _tell(summary: "Summary", output: str, meter: "Meter", seconds: float) -> None:
    print(summary.table())
    if summary.reasons:
        print(f"\nwhat is not ok, with the first places:\n{summary.places()}")
    if summary.retokenized:
        print(
            f"{summary.retokenized:,} of {summary.answers:,} answers give other tokens when their text is "
            "read again than the target generated"
        )
    print(
        f"\n{output}: {summary.written:,} chats, {summary.tokens:,} generated tokens; "
        f"this run {meter.summary(seconds)}; every row's status: {output}.status"
    )
