"""The rounds that draft-and-verify decoding would make on a text that is already known.

in    streaks: for each token of the text that has a successor, how many drafted tokens behind it are right
out   tokens committed per round
law   equals the rounds of decode_chain whenever the text is the target's greedy text (fp32)

The target's verdicts are the text itself, so one batched forward of the drafter replaces one per round.
"""

from collections.abc import Sequence


def walk_rounds(streaks: Sequence[int]) -> tuple[int, ...]:
    """Tokens committed per round, from the streak of every possible anchor.

    The first token of the text is the prefill's own and belongs to no round; then each round commits its
    streak and one token of the target's, at most what is left. len(streaks) is the length of the text less
    one.
    """
    rounds: list[int] = []
    anchor = 0
    while anchor < len(streaks):
        committed = min(int(streaks[anchor]) + 1, len(streaks) - anchor)
        rounds.append(committed)
        anchor += committed
    return tuple(rounds)


def first_rounds(rounds: Sequence[int], *, new_tokens: int) -> tuple[int, ...]:
    """The rounds of the same decoding had it been limited to `new_tokens` tokens, the last one cut short."""
    kept: list[int] = []
    left = new_tokens - 1  # the prefill's token belongs to no round
    for committed in rounds:
        if left <= 0:
            break
        kept.append(min(committed, left))
        left -= committed
    return tuple(kept)
