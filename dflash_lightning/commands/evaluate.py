"""`python cli.py evaluate`: how well a drafter drafts, here or in a server. Parses, measures, prints."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jsonargparse import ArgumentParser, Namespace

from dflash_lightning.commands.chat_options import add_template, add_template_arguments, chat_format
from dflash_lightning.commands.decoding_options import add_decoding, require_device
from dflash_lightning.commands.evaluate_checks import require_sense
from dflash_lightning.commands.evaluate_output import prompts_bar, write_json
from dflash_lightning.commands.evaluate_server import ask_servers
from dflash_lightning.commands.sampling_options import add_sampling
from dflash_lightning.commands.teaching_help import TeachingHelp
from dflash_lightning.regenerate.key import KEY_VARIABLE
from dflash_lightning.short_errors import ShortErrors

if TYPE_CHECKING:  # torch and transformers take seconds to import, which `--help` should not cost
    from dflash_lightning.decoding.sampling import Sampling

DEMO_PROMPTS = "examples/demo/heldout.jsonl"

DESCRIPTION = f"""\
Decode prompts with a drafter, plainly, and by prompt lookup; set acceptance lengths and speeds side by side.

  python cli.py evaluate --target smollm2-135m-instruct --drafter runs/demo/drafter --prompts {DEMO_PROMPTS}
  python cli.py evaluate ... --tree 16 64 --json scores.json --plot scores.png
  python cli.py evaluate ... --against other/drafter          # A and B, with an interval for the difference
  python cli.py evaluate ... --batch-size 1                   # the speed-up that papers quote
  python cli.py evaluate --server http://localhost:8000 --prompts chats.jsonl --concurrency 8

--drafter takes a folder that `export` wrote, or a released one in z-lab's format. Prompts are JSON Lines or
Parquet: messages or conversations (a last answer is left out), prompt, or turns (the first is asked).
Give --chat-template, --template-arguments and --stop-token as to `prepare`: under another template, or with
thinking where it was trained without, a drafter drafts worse than it can.

How to read it
  tau          acceptance length: tokens per target pass, the bonus token included. pooled: all tokens over
               all rounds; mean: of each prompt's own; first 32: pooled, had every answer ended after 32 new
               tokens, before small models repeat themselves.
  prompt       what copying from prompt and answer alone would reach: a drafter is worth what it gains over
  lookup       this.
  speed-up     tokens/s over those of plain decoding of the same prompts in this run, prefill included.
               Below 1 the drafter costs more than it saves.
  drafting     share of the time that the drafter takes.
  own text     prompts whose text is that of plain decoding, token for token: all of them in float32, but
               for near-ties of two tokens; in bfloat16 more of these fall the other way.
A server is asked for tokens/s, latency, and the acceptance length that it reports itself; its key, if it
wants one, is read from {KEY_VARIABLE}.
"""


def main(args: Sequence[str] | None = None) -> int:
    """Exit code 0. Raises ValueError and OSError where the input makes no sense: main.py prints them."""
    parser = make_parser()
    options = parser.parse_args(args)
    require_sense(options, parser.get_defaults())
    return ask_servers(options) if options.server else _evaluate(options)


def make_parser() -> ArgumentParser:
    parser = ShortErrors(prog="python cli.py evaluate", description=DESCRIPTION, formatter_class=TeachingHelp)
    add = parser.add_argument
    add("--target", help="folder or hub name of the target, or smollm2-135m-instruct")
    add("--drafter", metavar="DIR", help="folder of the drafter")
    add("--against", metavar="DIR", help="a second drafter; with --server, the URL of a second server")
    add(
        "--prompts",
        nargs="+",
        default=[DEMO_PROMPTS],
        metavar="FILE",
        help="files, folders or globs of prompts",
    )
    add(
        "--category", metavar="COLUMN", help="column with the kind of a prompt; by default `category`, if any"
    )
    add("--limit", type=int, metavar="N", help="only the first so many prompts")
    add("--tree", type=int, nargs="+", default=[], metavar="M", help="also trees of so many nodes")
    add("--batch-size", type=int, default=8, metavar="N", help="prompts per target pass")
    add_decoding(parser)
    add_template(parser)
    add_template_arguments(parser)
    add_sampling(parser, seed_help="prompt i is sampled with seed N + i")
    add(
        "--server",
        metavar="URL",
        help="ask this OpenAI-compatible server instead, such as http://localhost:8000",
    )
    add("--model", metavar="NAME", help="name of the model that the server serves, if it serves several")
    add("--concurrency", type=int, default=1, metavar="N", help="requests that the server gets at once")
    add(
        "--timeout",
        type=float,
        default=600.0,
        metavar="SECONDS",
        help="longest wait for one answer of a server",
    )
    add("--json", metavar="FILE", help="write the figures for programs")
    add("--plot", metavar="PNG", help="write a page of pictures (or .pdf, .svg)")
    return parser


def _evaluate(options: Namespace) -> int:
    from transformers.utils import logging

    from dflash_lightning.data.tokenizer import template_hash
    from dflash_lightning.evaluation.as_json import as_values
    from dflash_lightning.evaluation.drafters import (
        common_block_size,
        dtype_named,
        labelled,
        methods_for,
        read_drafters,
        ready_drafters,
    )
    from dflash_lightning.evaluation.measure import Wanted, measure
    from dflash_lightning.evaluation.prompts import read_prompts
    from dflash_lightning.evaluation.result import ChatFacts, evaluation
    from dflash_lightning.evaluation.table import as_text
    from dflash_lightning.evaluation.tokens import prompt_ids
    from dflash_lightning.export.identity import identity
    from dflash_lightning.target.loading import load_config, load_target, load_tokenizer

    logging.disable_progress_bar()
    require_device(options.device)
    prompts = read_prompts(options.prompts, category=options.category, limit=options.limit)
    tokenizer = load_tokenizer(options.target)
    form = chat_format(options, tokenizer)
    asked = prompt_ids(prompts, form, load_config(options.target), max_new_tokens=options.max_new_tokens)
    target = load_target(options.target, dtype=dtype_named(options.dtype), device=options.device)
    folders = labelled(options.drafter, options.against)
    read = read_drafters(folders, target)
    known = identity(read, options.target) if options.json else None
    drafters = ready_drafters(read, target)
    del read  # a copy of the weights, where the target has another dtype or device
    wanted = Wanted(
        prompts=asked,
        categories=[prompt.category for prompt in prompts],
        max_new_tokens=options.max_new_tokens,
        stop_ids=form.stop_ids,
        batch_size=options.batch_size,
        block_size=common_block_size(drafters, options.block_size),
        sampling=_sampling(options),
    )
    with prompts_bar("decoding", len(prompts)) as step:
        measured = measure(target, methods_for(drafters, options.tree), wanted, on_group=step)
    found = evaluation(
        measured,
        wanted,
        target=options.target,
        drafters=folders,
        dtype=options.dtype,
        device=options.device,
        block_size=wanted.block_size or 1,
        chats=ChatFacts(
            template=template_hash(tokenizer, form.template, form.arguments),
            arguments=form.arguments,
            stop_ids=tuple(sorted(form.stop_ids)),
        ),
    )
    print(as_text(found))
    write_json(options, as_values(found, known))
    if options.plot:
        from dflash_lightning.evaluation.pictures import draw_evaluation  # matplotlib takes a second

        draw_evaluation(found, Path(options.plot))
        print(f"wrote {options.plot}", file=sys.stderr)
    return 0


def _sampling(options: Namespace) -> "Sampling | None":
    from dflash_lightning.decoding.sampling import Sampling

    sampling = Sampling(
        temperature=options.temperature, top_k=options.top_k, top_p=options.top_p, seed=options.seed
    )
    return None if sampling.greedy else sampling
