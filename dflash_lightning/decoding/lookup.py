"""Prompt lookup: the drafter that needs no model, and the baseline every acceptance length stands beside.

in    prompt, the text known to follow it, block size
out   tokens committed per round
law   a round at some token uses nothing behind that token

Small models repeat themselves, and a drafter that merely copies looks good on repetition; what it gains
over this baseline is what it understood.
"""

from collections.abc import Sequence

from dflash_lightning.decoding.walk import walk_rounds


def lookup_rounds(
    prompt_ids: Sequence[int], text_ids: Sequence[int], *, block_size: int, max_ngram: int = 3
) -> tuple[int, ...]:
    """Rounds of greedy decoding with prompt-lookup drafts of up to block_size - 1 tokens."""
    return walk_rounds(lookup_streaks(prompt_ids, text_ids, block_size=block_size, max_ngram=max_ngram))


def lookup_streaks(
    prompt_ids: Sequence[int], text_ids: Sequence[int], *, block_size: int, max_ngram: int = 3
) -> list[int]:
    """For each token of the text but the last: how many looked-up tokens behind it are right.

    The longest ending of at most `max_ngram` tokens that occurred before, at its most recent occurrence,
    proposes what followed it there, as far as that is known.
    """
    ids = [*prompt_ids, *text_ids]
    last_end: dict[tuple[int, ...], int] = {}  # n-gram -> where it last ended, strictly before the anchor
    streaks = []
    for anchor in range(len(ids) - 1):
        endings = [tuple(ids[anchor + 1 - n : anchor + 1]) for n in range(1, min(max_ngram, anchor + 1) + 1)]
        if anchor >= len(prompt_ids):
            found = next((last_end[ending] for ending in reversed(endings) if ending in last_end), anchor)
            proposal = ids[found + 1 : anchor + 1][: block_size - 1]
            streaks.append(_agreeing(proposal, ids[anchor + 1 : anchor + block_size]))
        last_end.update(dict.fromkeys(endings, anchor))
    return streaks


def _agreeing(proposal: Sequence[int], truth: Sequence[int]) -> int:
    agree = [p == t for p, t in zip(proposal, truth, strict=False)]
    return [*agree, False].index(False)
