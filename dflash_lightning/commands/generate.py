"""`python cli.py generate`: one prompt, drafted and verified before your eyes. Parses, decodes, prints."""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jsonargparse import ArgumentParser, Namespace

from dflash_lightning.commands.teaching_help import TeachingHelp

if TYPE_CHECKING:  # torch and transformers take seconds to import, which `--help` should not cost
    from dflash_lightning.decoding.decoded import Decoded, OnRound
    from dflash_lightning.drafter.model import DFlashDrafter
    from dflash_lightning.target.model import Target

DESCRIPTION = """\
Answer one prompt greedily: the drafter proposes a block of tokens, the target verifies them all in one pass.
The text is the target's own; the acceptance length (tau) says how many tokens each of its passes yielded.

Examples:
  python cli.py generate --target smollm2-135m-instruct --drafter runs/demo/drafter --prompt "Name a planet."
  python cli.py generate ... --check          # decode once more without a drafter, compare text and speed
  python cli.py generate ... --show-rounds    # a bar where one target pass ends and the next begins
  python cli.py generate --target my-model --plain --prompt "..."    # the target alone

In float32 the text equals the target's greedy text token for token. In bfloat16 a pass over several tokens
may round differently from passes over one, so near-ties can fall the other way.
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
        return (
            f"{tokens} tokens in {rounds} rounds: acceptance length (tau) {self.decoded.tau:.2f}, "
            f"{self.tokens_per_s:.1f} tokens/s"
        )


def _generate(options: Namespace) -> int:
    if options.drafter is None and not options.plain:
        raise ValueError("give the --drafter to draft with, or --plain to decode with the target alone")
    import torch
    from transformers.utils import logging

    from dflash_lightning.target.loading import load_target, load_tokenizer

    logging.disable_progress_bar()  # a bar of weights being loaded would stand in the middle of the answer
    dtype = getattr(torch, options.dtype)
    tokenizer = load_tokenizer(options.target)
    prompt_ids = encode_prompt(tokenizer, options.prompt, raw=options.raw)
    target = load_target(options.target, dtype=dtype, device=options.device)
    drafter = None if options.plain else _load_drafter(options, target, dtype)
    stream = Stream(tokenizer, show_rounds=options.show_rounds)
    run = _decode(options, target, drafter, prompt_ids, tokenizer, stream.write)
    print(f"\n\n{run.summary()}")
    if not options.check or drafter is None:
        return 0
    return _check(run, _decode(options, target, None, prompt_ids, tokenizer, None), tokenizer)


def _load_drafter(options: Namespace, target: "Target", dtype: Any) -> "DFlashDrafter":
    from dflash_lightning.export.formats import load_drafter
    from dflash_lightning.target.geometry import require_fits

    drafter = load_drafter(options.drafter, dtype=dtype, device=options.device)
    require_fits(drafter.config, target.config)
    return drafter


def encode_prompt(tokenizer: Any, prompt: str, *, raw: bool) -> list[int]:
    """Token ids of the prompt: as one user turn of the target's chat template, or as it stands."""
    if raw:
        return list(tokenizer(prompt).input_ids)
    if not getattr(tokenizer, "chat_template", None):
        raise ValueError("the target's tokenizer has no chat template; use --raw to continue plain text")
    turns = [{"role": "user", "content": prompt}]
    text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    return list(tokenizer(text, add_special_tokens=False).input_ids)  # the template wrote them already


def stop_ids(target: "Target", tokenizer: Any) -> set[int]:
    """Every token that ends an answer: the generation config's list and the tokenizer's own."""
    listed = getattr(target.model.generation_config, "eos_token_id", None)
    ids = {tokenizer.eos_token_id, *(listed if isinstance(listed, list) else [listed])}
    return {token_id for token_id in ids if token_id is not None}


def _decode(
    options: Namespace,
    target: "Target",
    drafter: "DFlashDrafter | None",
    prompt_ids: Sequence[int],
    tokenizer: Any,
    on_round: "OnRound | None",
) -> Run:
    from dflash_lightning.decoding.chain import decode_chain
    from dflash_lightning.decoding.plain import decode_plain

    ends, limit = stop_ids(target, tokenizer), options.max_new_tokens
    started = time.perf_counter()
    if drafter is None:
        decoded = decode_plain(target, prompt_ids, max_new_tokens=limit, stop_ids=ends, on_round=on_round)
    else:
        decoded = decode_chain(
            target,
            drafter,
            prompt_ids,
            max_new_tokens=limit,
            stop_ids=ends,
            block_size=options.block_size,
            on_round=on_round,
        )
    return Run(decoded, time.perf_counter() - started)


class Stream:
    """Prints text as tokens arrive; holds back the bytes of a character that is not complete yet."""

    def __init__(self, tokenizer: Any, *, show_rounds: bool) -> None:
        self._tokenizer = tokenizer
        self._bar = "|" if show_rounds else ""
        self._ids: list[int] = []
        self._shown = 0

    def write(self, tokens: Sequence[int]) -> None:
        self._ids += tokens
        text = self._tokenizer.decode(self._ids, skip_special_tokens=True)
        if not text.endswith("\ufffd"):
            print(text[self._shown :], end=self._bar, flush=True)
            self._shown = len(text)


def _check(drafted: Run, plain: Run, tokenizer: Any) -> int:
    """Compare with the target's own greedy text, and say where they part."""
    ours, wanted = drafted.decoded.token_ids, plain.decoded.token_ids
    speed = f"{drafted.tokens_per_s / plain.tokens_per_s:.2f} times the speed of plain decoding"
    if ours == wanted:
        print(f"check: equal to the target's own greedy text, at {speed}")
        return 0
    pairs = zip(ours, wanted, strict=False)
    first = next((i for i, (one, two) in enumerate(pairs) if one != two), min(len(ours), len(wanted)))
    one, two = (tokenizer.decode(ids[first : first + 8]) for ids in (ours, wanted))
    print(
        f"check: DIFFERENT from the target's own text at new token {first}: {one!r} against its own {two!r}"
    )
    return 1
