"""One decoding of `generate`: with a drafter or without, timed, and compared with the target's own text."""

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jsonargparse import Namespace

from dflash_lightning.commands.answer_stream import AnswerStream
from dflash_lightning.plan_view.columns import plural

if TYPE_CHECKING:  # torch and transformers take seconds to import, which `--help` should not cost
    from dflash_lightning.decoding.decoded import Decoded
    from dflash_lightning.decoding.sampling import Sampling
    from dflash_lightning.drafter.model import DFlashDrafter
    from dflash_lightning.target.model import Target


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
        tau = f"{self.decoded.tau:.2f}" if rounds else "-"
        share = self.decoded.drafted / max(1, tokens)
        return (
            f"{plural(tokens, 'token')} in {plural(rounds, 'round')}: acceptance length (tau) {tau}, "
            f"{share:.0%} of the text drafted, {self.tokens_per_s:.1f} tokens/s"
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
        """Decode, after a short warm-up that nobody sees and no clock counts."""
        from dflash_lightning.evaluation.measure import WARM_UP_TOKENS

        longest = self.options.max_new_tokens
        # the first pass of a process pays for what later ones reuse, imports included
        self._decoded(drafter, None, max_new_tokens=min(WARM_UP_TOKENS, longest))
        started = time.perf_counter()
        decoded = self._decoded(drafter, stream, max_new_tokens=longest)
        if stream is not None:
            stream.close()
        return Run(decoded, time.perf_counter() - started)

    def _decoded(
        self, drafter: "DFlashDrafter | None", stream: AnswerStream | None, *, max_new_tokens: int
    ) -> "Decoded":
        from dflash_lightning.decoding.chain import decode_chain
        from dflash_lightning.decoding.plain import decode_plain
        from dflash_lightning.decoding.tree_verify import decode_tree

        common: Any = {
            "max_new_tokens": max_new_tokens,
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


def compare(drafted: Run, plain: Run, tokenizer: Any, *, whose: str) -> int:
    """Say whether the text is that of plain decoding, and where they part. Exit code: 1 if they do."""
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
