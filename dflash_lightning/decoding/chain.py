"""Draft and verify, one chain of drafted tokens per round (spec/dflash.md 4.1 to 4.3).

in    target, drafter, prompt
out   the target's own text, and the tokens each round committed
law   greedy: token for token the target's text (fp32) whatever the drafter; sampled: one the target might
      have drawn, exactly as often. Only the number of rounds is the drafter's merit

The drafter always fills its whole block, as trained; near the limit the target merely verifies fewer of the
slots.
"""

from collections.abc import Collection, Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from dflash_lightning.decoding.decoded import Decoded, OnDraft, OnRound, Transcript
from dflash_lightning.decoding.rejection import RejectionSampler
from dflash_lightning.decoding.rounds import Rounds, resolve_block_size
from dflash_lightning.decoding.sampling import Sampling
from dflash_lightning.decoding.verify import accepted, greedy_tokens
from dflash_lightning.drafter.model import DFlashDrafter
from dflash_lightning.target.hidden_states import TargetStates
from dflash_lightning.target.model import Target


@torch.no_grad()
def decode_chain(
    target: Target,
    drafter: DFlashDrafter,
    prompt_ids: Sequence[int],
    *,
    max_new_tokens: int,
    stop_ids: Collection[int] = (),
    block_size: int | None = None,
    sampling: Sampling | None = None,
    on_round: OnRound | None = None,
    on_draft: OnDraft | None = None,
) -> Decoded:
    """Decode one prompt with drafts.

    Args:
        stop_ids: the text ends with the first of these, inclusive.
        block_size: slots per block, anchor included; at most the trained size (default). 1 drafts nothing.
        sampling: how tokens are drawn; None takes the likeliest.
        on_round: receives the newly committed tokens and how many of them were drafts, for streaming.
        on_draft: receives the drafted tokens of a round before the target has seen them.

    Raises:
        ValueError: empty prompt, block size out of range, or a target that cannot forget rejected tokens.
    """
    block_size = resolve_block_size(drafter, block_size)
    transcript = Transcript(max_new_tokens, stop_ids, on_round)
    chain = Chain(target, drafter, prompt_ids, block_size=block_size, sampling=sampling)
    if transcript.left > 0:
        transcript.add([chain.prefill()])
    while transcript.left > 0:
        drafted = chain.draft()[: transcript.left - 1]  # the target adds one of its own
        if on_draft is not None:
            on_draft(drafted.tolist())
        transcript.add(chain.commit(drafted))
    return transcript.result()


class Chain(Rounds):
    """Rounds whose drafts follow one another."""

    def __init__(
        self,
        target: Target,
        drafter: DFlashDrafter,
        prompt_ids: Sequence[int],
        *,
        block_size: int,
        sampling: Sampling | None = None,
    ) -> None:
        super().__init__(target, drafter, prompt_ids, block_size=block_size, sampling=sampling)
        drawn = sampling is not None and not sampling.greedy and sampling.method == "rejection"
        self.rejection = RejectionSampler(sampling) if sampling is not None and drawn else None

    def draft(self) -> Int[Tensor, " k"]:
        """The drafter's tokens for the block_size - 1 positions behind the anchor."""
        if self.block_size == 1 and self.rejection is None:
            return self.anchor[:0]
        hidden = self.draft_states()
        if self.rejection is not None:
            return self.rejection.draft(hidden, self.target.head)
        return greedy_tokens(hidden, self.target.head)

    def commit(self, drafted: Int[Tensor, " k"]) -> list[int]:
        """Let the target judge the drafted tokens: those that stand, and one of its own, the next anchor."""
        states = self.verify(drafted)
        count, following = self._judge(drafted, states)
        self.keep(states, range(count + 1), following)
        return [*drafted[:count].tolist(), following]

    def _judge(self, drafted: Int[Tensor, " k"], states: TargetStates) -> tuple[int, int]:
        """How many drafts stand, and the token behind them."""
        if self.rejection is not None:
            assert states.final is not None
            return self.rejection.judge(drafted, states.final[0], self.target.head)
        positions = torch.arange(self.start + 1, self.start + len(drafted) + 2)
        verified = self.own_tokens(states, positions)
        count = accepted(drafted, verified[:-1])
        return count, int(verified[count])
