"""`python cli.py generate`: one prompt, drafted and verified before your eyes. Parses, decodes, prints."""

import sys
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jsonargparse import ArgumentParser, Namespace

from dflash_lightning.commands.answer_stream import AnswerStream
from dflash_lightning.commands.sampling_options import add_sampling
from dflash_lightning.commands.teaching_help import TeachingHelp

if TYPE_CHECKING:  # torch and transformers take seconds to import, which `--help` should not cost
    from dflash_lightning.decoding.decoded import Decoded
    from dflash_lightning.decoding.sampling import Sampling
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
  python cli.py generate --target my-model --plain --prompt "..."    # the target alone

In float32 the text equals the target's own text token for token, greedy or with the same seed. In bfloat16
a pass over several tokens may round differently from passes over one, so near-ties can fall the other way.
"""


def main(args: Sequence[str] | None = None) -> int:
    """Exit code: 0; 1 with one message on standard error, or when --check finds another text."""
    options = make_parser().parse_args(args)
    try:
        return _generate(options)
    except (ValueError, OSError) as error:
        print(f"generate: {error}", file=sys.stderr)
        return 1


def make_parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="python cli.py generate", description=DESCRIPTION, formatter_class=TeachingHelp
    )
    add = parser.add_argument
    add("--target", required=True, help="folder or hub name of the target, or smollm2-135m-instruct")
    add("--drafter", metavar="DIR", help="folder that `export` wrote, or a released one in z-lab's format")
    add(
        "--prompt",
        required=True,
        metavar="TEXT",
        help="what the user says, or with --raw the text to continue",
    )
    add("--max-new-tokens", type=int, default=128, metavar="N", help="longest answer, in tokens")
    add("--block-size", type=int, metavar="B", help="slots per block; at most, and by default, as trained")
    add(
        "--dtype", choices=["float32", "bfloat16", "float16"], default="float32", help="of target and drafter"
    )
    add("--device", default="cpu", help="such as cpu or cuda:0")
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


@dataclass(frozen=True)
class Run:
    """One decoding and how long it took, prefill included."""

    decoded: "Decoded"
    seconds: float

    @property
    def tokens_per_s(self) -> float:
        return len(self.decoded.token_ids) / max(self.seconds, 1e-9)

    def summary(self) -> str:
        tokens, rounds = len(self.decoded.token_ids), len(self.decoded.rounds)
        drafted = max(
            0, tokens - 1 - rounds
        )  # the prefill's token is the target's own, and one of each round
        return (
            f"{tokens} tokens in {rounds} rounds: acceptance length (tau) {self.decoded.tau:.2f}, "
            f"{drafted / max(1, tokens):.0%} of the text drafted, {self.tokens_per_s:.1f} tokens/s"
        )


@dataclass(frozen=True)
class Decoder:
    """Target and prompt; decodes with a drafter or without, as the options say."""

    options: Namespace
    target: "Target"
    prompt_ids: Sequence[int]
    stop_ids: Collection[int]
    sampling: "Sampling | None"

    def run(self, drafter: "DFlashDrafter | None", stream: AnswerStream | None) -> Run:
        started = time.perf_counter()
        return Run(self._decoded(drafter, stream), time.perf_counter() - started)

    def _decoded(self, drafter: "DFlashDrafter | None", stream: AnswerStream | None) -> "Decoded":
        from dflash_lightning.decoding.chain import decode_chain
        from dflash_lightning.decoding.plain import decode_plain
        from dflash_lightning.decoding.tree_verify import decode_tree

        common: Any = {
            "max_new_tokens": self.options.max_new_tokens,
            "stop_ids": self.stop_ids,
            "sampling": self.sampling,
            "on_round": None if stream is None else stream.write,
        }
        if drafter is None:
            return decode_plain(self.target, self.prompt_ids, **common)
        common["block_size"] = self.options.block_size
        if self.options.tree is not None:
            return decode_tree(self.target, drafter, self.prompt_ids, budget=self.options.tree, **common)
        return decode_chain(
            self.target,
            drafter,
            self.prompt_ids,
            on_draft=None if stream is None else stream.drafted,
            **common,
        )


def _generate(options: Namespace) -> int:
    _require_sense(options)
    import torch
    from transformers.utils import logging

    from dflash_lightning.data.tokenizer import stop_ids
    from dflash_lightning.decoding.context import require_room
    from dflash_lightning.decoding.sampling import Sampling
    from dflash_lightning.target.loading import load_stop_ids, load_target, load_tokenizer

    logging.disable_progress_bar()  # a bar of weights being loaded would stand in the middle of the answer
    dtype = getattr(torch, options.dtype)
    sampling = Sampling(
        temperature=options.temperature,
        top_k=options.top_k,
        top_p=options.top_p,
        seed=options.seed,
        method=options.sampling,
    )
    tokenizer = load_tokenizer(options.target)
    prompt_ids = encode_prompt(tokenizer, options.prompt, raw=options.raw)
    target = load_target(options.target, dtype=dtype, device=options.device)
    require_room(target.config, len(prompt_ids), options.max_new_tokens)
    drafter = None if options.plain else _load_drafter(options, target, dtype)
    ends = stop_ids(tokenizer, [], load_stop_ids(options.target))
    decoder = Decoder(options, target, prompt_ids, ends, None if sampling.greedy else sampling)
    shown = {"show_rounds": options.show_rounds, "show_rejected": options.show_rejected}
    run = decoder.run(drafter, AnswerStream(tokenizer, colour=options.color, **shown))
    print(f"\n\n{run.summary()}")
    if not options.check or drafter is None:
        return 0
    return _check(run, decoder.run(None, None), tokenizer, whose="own" if decoder.sampling else "own greedy")


def _require_sense(options: Namespace) -> None:
    if options.drafter is None and not options.plain:
        raise ValueError("give the --drafter to draft with, or --plain to decode with the target alone")
    if options.show_rejected and (options.plain or options.tree is not None):
        raise ValueError(
            "--show-rejected shows what a chain of drafts lost; it goes with neither --plain nor --tree"
        )
    if options.check and options.sampling == "rejection" and options.temperature > 0:
        raise ValueError(
            "--check compares with plain sampling from the same seed, which rejection sampling equals in "
            "distribution only, not token for token; check with --sampling coupling"
        )


def _load_drafter(options: Namespace, target: "Target", dtype: Any) -> "DFlashDrafter":
    from dflash_lightning.export.formats import load_drafter
    from dflash_lightning.target.geometry import require_fits

    drafter = load_drafter(options.drafter, dtype=dtype, device=options.device, depth=target.depth)
    require_fits(drafter.config, target.config)
    return drafter


def encode_prompt(tokenizer: Any, prompt: str, *, raw: bool) -> list[int]:
    """Token ids of the prompt: as one user turn of the target's chat template, or as it stands."""
    if raw:
        return list(tokenizer(prompt).input_ids)
    from dflash_lightning.evaluation.tokens import chat_ids

    return chat_ids(tokenizer, [{"role": "user", "content": prompt}])


def _check(drafted: Run, plain: Run, tokenizer: Any, *, whose: str) -> int:
    """Compare with the text of plain decoding, and say where they part."""
    ours, wanted = drafted.decoded.token_ids, plain.decoded.token_ids
    speed = f"{drafted.tokens_per_s / plain.tokens_per_s:.2f} times the speed of plain decoding"
    if ours == wanted:
        print(f"check: equal to the target's {whose} text, at {speed}")
        return 0
    pairs = zip(ours, wanted, strict=False)
    first = next((i for i, (one, two) in enumerate(pairs) if one != two), min(len(ours), len(wanted)))
    one, two = (tokenizer.decode(ids[first : first + 8]) for ids in (ours, wanted))
    print(
        f"check: DIFFERENT from the target's own text at new token {first}: {one!r} against its own {two!r}"
    )
    return 1
