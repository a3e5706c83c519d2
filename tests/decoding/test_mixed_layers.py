"""A drafter whose sliding layers alone are causal within a block commits the text of the target."""

import pytest

from dflash_lightning.decoding.acceptance import acceptance_length
from dflash_lightning.decoding.batched import decode_batch
from dflash_lightning.decoding.chain import decode_chain
from dflash_lightning.decoding.teacher import teacher_forced_streaks
from dflash_lightning.decoding.tree_verify import decode_tree
from dflash_lightning.decoding.walk import walk_rounds
from tests.decoding.conftest import LENGTH


def one_by_one(target, drafter, texts, budget):
    if budget is None:
        return [decode_chain(target, drafter, prompt, max_new_tokens=LENGTH) for prompt in texts]
    return [decode_tree(target, drafter, prompt, max_new_tokens=LENGTH, budget=budget) for prompt in texts]


@pytest.mark.parametrize("budget", [None, 8])
def test_chains_trees_and_batches_commit_the_targets_text(target, mixed, texts, budget):
    assert mixed.config.causal_in_block == "sliding"
    alone = one_by_one(target, mixed, texts, budget)
    assert [decoded.token_ids for decoded in alone] == [tuple(text) for text in texts.values()]
    assert acceptance_length([decoded.rounds for decoded in alone]).pooled > 1.5  # drafts were accepted
    assert decode_batch(target, mixed, list(texts), max_new_tokens=LENGTH, budget=budget) == alone


def test_what_is_drafted_beside_a_known_text_is_what_decoding_drafts(target, mixed, texts):
    for prompt, text in texts.items():
        streaks = teacher_forced_streaks(target, mixed, [*prompt, *text], len(prompt))
        decoded = decode_chain(target, mixed, prompt, max_new_tokens=LENGTH)
        assert walk_rounds(streaks) == decoded.rounds
