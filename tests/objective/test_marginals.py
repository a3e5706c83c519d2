import pytest
import torch

from dflash_lightning.objective.marginals import best_of, best_tokens, on_grid
from tests.objective.reference import draw


def test_best_tokens_are_the_top_of_the_full_softmax():
    hidden, head = draw(7, 5, seed=0, dtype=torch.float32), draw(40, 5, seed=1, dtype=torch.float32)
    best = best_tokens(hidden, head, k=6, chunk=3)
    expected = (hidden @ head.T).log_softmax(-1).topk(6)
    torch.testing.assert_close(best.log_probs.float(), expected.values)
    assert torch.equal(best.token_ids, expected.indices)
    assert best.log_probs.exp().sum(-1).max() < 1  # not normalised over the k alone


@pytest.mark.parametrize("chunk", [1, 4, 100])
def test_chunks_change_nothing(chunk):
    hidden, head = draw(9, 8, seed=2), draw(30, 8, seed=3)
    whole, parts = best_tokens(hidden, head, k=4, chunk=9), best_tokens(hidden, head, k=4, chunk=chunk)
    assert torch.equal(parts.token_ids, whole.token_ids)
    torch.testing.assert_close(parts.log_probs, whole.log_probs)


def test_no_slot_no_token():
    assert best_tokens(torch.empty(0, 5), torch.zeros(9, 5), k=3, chunk=4).token_ids.shape == (0, 3)


def test_a_small_vocabulary_is_taken_whole():
    assert best_of(torch.zeros(2, 3), k=8).token_ids.shape == (2, 3)


def test_sums_on_the_grid_do_not_depend_on_the_order():
    values = on_grid(-30 * torch.rand(200, 15, generator=torch.Generator().manual_seed(0)))
    forward, backward = values.cumsum(1)[:, -1], values.flip(1).cumsum(1)[:, -1]
    assert torch.equal(forward, backward)
    raw = values / 3  # off the grid
    assert not torch.equal(raw.cumsum(1)[:, -1], raw.flip(1).cumsum(1)[:, -1])


def test_a_sure_slot_costs_nothing_and_never_less():
    best = best_of(torch.tensor([[1000.0, 0.0], [90.0, 0.0]]), k=2)
    assert best.log_probs[:, 0].tolist() == [0.0, 0.0]
