"""`python cli.py generate`: one prompt, drafted and verified before your eyes. Parses, decodes, prints."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jsonargparse import ArgumentParser, Namespace

from dflash_lightning.commands.answer_stream import AnswerStream
from dflash_lightning.commands.chat_options import (
    add_template,
    add_template_arguments,
    answer_ends,
    chat_format,
)
from dflash_lightning.commands.decoding_options import add_decoding, require_device
from dflash_lightning.commands.generate_checks import require_sense
from dflash_lightning.commands.generate_run import Decoder, compare
from dflash_lightning.commands.sampling_options import add_sampling
from dflash_lightning.commands.teaching_help import TeachingHelp
from dflash_lightning.short_errors import ShortErrors

if TYPE_CHECKING:  # torch and transformers take seconds to import, which `--help` should not cost
    from dflash_lightning.drafter.model import DFlashDrafter
    from dflash_lightning.target.model import Target

DESCRIPTION = """\
Answer one prompt: the drafter proposes a block of tokens, the target verifies them all in one pass.
The text is the target's own; the acceptance length (tau) says how many tokens each of its passes yielded.
On a terminal, drafts that stood are green, and the target's own tokens are not (NO_COLOR turns it off).

Examples:
  python cli.py generate --target smollm2-135m-instruct --drafter runs/demo/drafter --prompt "Name a planet."
  python cli.py generate ... --check          # decode once more without a drafter, compare text and speed
  python cli.py generate ... --show-rounds    # a bar where one target pass ends and the next begins
  python cli.py generate ... --show-rejected  # also the drafts that the target did not take
  python cli.py generate ... --tree 32        # a tree of 32 drafts per pass instead of a chain
  python cli.py generate ... --temperature 0.8 --seed 1
  python cli.py generate ... --template-arguments '{"enable_thinking": false}'      # as given to `prepare`
  python cli.py generate --target my-model --plain --prompt "..."    # the target alone

In float32 the text equals the target's own text token for token, greedy or with the same seed. In bfloat16
a pass over several tokens may round differently from passes over one, so near-ties can fall the other way.
"""


def main(args: Sequence[str] | None = None) -> int:
    """Exit code: 0; 1 with one message on standard error, or when --check finds another text."""
    parser = make_parser()
    options = parser.parse_args(args)
    try:
        require_sense(options, parser.get_defaults())
        return _generate(options)
    except (ValueError, OSError) as error:
        print(f"generate: {error}", file=sys.stderr)
        return 1


def make_parser() -> ArgumentParser:
    parser = ShortErrors(prog="python cli.py generate", description=DESCRIPTION, formatter_class=TeachingHelp)
    add = parser.add_argument
    add("--target", required=True, help="folder or hub name of the target, or smollm2-135m-instruct")
    add("--drafter", metavar="DIR", help="folder that `export` wrote, or a released one in z-lab's format")
    add(
        "--prompt",
        required=True,
        metavar="TEXT",
        help="what the user says, or with --raw the text to continue",
    )
    add_decoding(parser)
    add_template(parser)
    add_template_arguments(parser)
    add("--raw", action="store_true", help="no chat template: continue the prompt as it stands")
    add("--plain", action="store_true", help="the target alone, without a drafter")
    add(
        "--check", action="store_true", help="decode without the drafter too; exit code 1 if the texts differ"
    )
    add("--show-rounds", action="store_true", help="print a bar between the tokens of two target passes")
    add("--show-rejected", action="store_true", help="print the drafts that were not taken, struck through")
    add("--color", choices=["auto", "always", "never"], default="auto", help="colour drafts that stood")
    add("--tree", type=int, metavar="M", help="draft trees of M nodes instead of chains")
    add_sampling(parser, seed_help="same seed, same text")
    add(
        "--sampling",
        choices=["coupling", "rejection"],
        default="coupling",
        help="rejection: drafts are drawn at random, too, and stand more often",
    )
    return parser


def _generate(options: Namespace) -> int:
    import torch
    from transformers.utils import logging

    from dflash_lightning.decoding.context import require_room
    from dflash_lightning.decoding.sampling import Sampling
    from dflash_lightning.target.loading import load_config, load_target, load_tokenizer

    logging.disable_progress_bar()  # a bar of weights being loaded would stand in the middle of the answer
    require_device(options.device)
    dtype = getattr(torch, options.dtype)
    sampling = Sampling(
        temperature=options.temperature,
        top_k=options.top_k,
        top_p=options.top_p,
        seed=options.seed,
        method=options.sampling,
    )
    tokenizer = load_tokenizer(options.target)
    prompt_ids, ends = encode_prompt(options, tokenizer)
    require_room(load_config(options.target), len(prompt_ids), options.max_new_tokens)
    target = load_target(options.target, dtype=dtype, device=options.device)
    drafter = None if options.plain else _load_drafter(options, target, dtype)
    decoder = Decoder(options, target, prompt_ids, ends, None if sampling.greedy else sampling)
    shown = {"show_rounds": options.show_rounds, "show_rejected": options.show_rejected}
    run = decoder.run(drafter, AnswerStream(tokenizer, colour=options.color, **shown))
    print(f"\n\n{run.summary()}")
    if not options.check:
        return 0
    return compare(run, decoder.run(None, None), tokenizer, whose="own" if decoder.sampling else "own greedy")


def _load_drafter(options: Namespace, target: "Target", dtype: Any) -> "DFlashDrafter":
    from dflash_lightning.export.formats import load_drafter
    from dflash_lightning.target.geometry import require_fits

    drafter = load_drafter(options.drafter, dtype=dtype, device=options.device, depth=target.depth)
    require_fits(drafter.config, target.config)
    return drafter


def encode_prompt(options: Namespace, tokenizer: Any) -> tuple[list[int], frozenset[int]]:
    """Token ids of the prompt, as one user turn of the chat template or as it stands; and what ends answers.

    Raises:
        ValueError: there is no chat template, it refuses the prompt, or a stop token is none.
    """
    if options.raw:
        return list(tokenizer(options.prompt).input_ids), answer_ends(options, tokenizer)
    from dflash_lightning.evaluation.tokens import chat_ids

    form = chat_format(options, tokenizer, way_out=", or use --raw to continue plain text")
    return chat_ids(form, [{"role": "user", "content": options.prompt}]), form.stop_ids
