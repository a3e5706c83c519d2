"""Spec 4.3 and oracle 6.33: sampled texts of a 3-state chain have exactly the chain's distribution.

81 texts of four tokens, counted and compared with their enumerated probabilities: at 80 degrees of freedom
chi2 exceeds 101.9 with one seed of twenty. A planted bias shows that the test can tell.
"""

import itertools

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from dflash_lightning.decoding import rejection
from dflash_lightning.decoding.chain import decode_chain
from dflash_lightning.decoding.plain import decode_plain
from dflash_lightning.decoding.rejection import residual, verdict
from dflash_lightning.decoding.sampling import Sampling, draw
from dflash_lightning.decoding.tree import build_tree, walk_tree
from dflash_lightning.decoding.tree_verify import decode_tree
from dflash_lightning.decoding.verify import accepted
from dflash_lightning.drafter.config import DrafterConfig
from dflash_lightning.drafter.model import DFlashDrafter
from dflash_lightning.objective.marginals import best_of
from dflash_lightning.target.geometry import drafter_config_for
from dflash_lightning.target.model import Target
from tests.slow import slow

LIMIT = 101.9  # 5 % critical value of chi2 at 80 degrees of freedom
LENGTH, START, DEPTH = 4, 0, 3
WANTED = torch.tensor([[0.5, 0.3, 0.2], [0.25, 0.25, 0.5], [0.2, 0.55, 0.25]], dtype=torch.float64)
PROPOSED = torch.tensor([[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.1, 0.2, 0.7]], dtype=torch.float64)  # per slot
TEXTS = list(itertools.product(range(3), repeat=LENGTH))


def chi2(texts):
    counted = dict.fromkeys(TEXTS, 0)
    for text in texts:
        counted[text] += 1
    expected = {text: len(texts) * float(WANTED[(START, *text[:-1]), text].prod()) for text in TEXTS}
    assert min(expected.values()) >= 5  # else chi2 means little
    return sum((counted[text] - expected[text]) ** 2 / expected[text] for text in TEXTS)


def chained(drafted, uniforms):
    """Coupling: (drafts that stand, the token behind them)."""

    def round_from(anchor):
        verified = draw(WANTED[[anchor, *drafted.tolist()]], uniforms())
        count = accepted(drafted, verified[:-1])
        return verified[: count + 1].tolist()

    return round_from


def coupled(uniforms):
    return chained(PROPOSED.argmax(1), uniforms)


def branched(uniforms):
    best = best_of(PROPOSED.log(), k=3)
    tree = build_tree(best.log_probs.tolist(), best.token_ids.tolist(), 9)
    depths = torch.tensor((0, *tree.depths))

    def round_from(anchor):
        verified = draw(WANTED[[anchor, *tree.tokens]], uniforms()[depths]).tolist()
        passed, following = walk_tree(tree, verified)
        return [*(tree.tokens[node - 1] for node in passed[1:]), following]

    return round_from


def rejecting(uniforms):
    def round_from(anchor):
        drafted = draw(PROPOSED, uniforms()[:DEPTH])
        count, following = verdict(drafted, PROPOSED, WANTED[[anchor, *drafted.tolist()]], uniforms())
        return [*drafted[:count].tolist(), following]

    return round_from


def sampled(way, *, runs=4000, biased=False):
    """Texts of `runs` decodings. Biased: all slots of a round share one random number."""
    generator = torch.Generator().manual_seed(1)

    def uniforms():
        fresh = torch.rand(DEPTH + 1, generator=generator, dtype=torch.float64)
        return fresh[:1].expand(DEPTH + 1) if biased else fresh

    round_from = way(uniforms)
    texts = []
    for _ in range(runs):
        text = [START]
        while len(text) <= LENGTH:
            text += round_from(text[-1])
        texts.append(tuple(text[1 : LENGTH + 1]))
    return texts


@pytest.mark.parametrize("way", [rejecting, *slow(coupled, branched)])
def test_texts_have_the_distribution_of_the_chain(way):
    assert chi2(sampled(way)) < LIMIT


@pytest.mark.slow
@pytest.mark.parametrize("way", [coupled, branched, rejecting])
def test_one_random_number_for_a_whole_round_would_be_noticed(way):
    assert chi2(sampled(way, biased=True)) > 2 * LIMIT


@pytest.mark.slow
def test_drawing_from_p_after_a_rejection_would_be_noticed(monkeypatch):
    monkeypatch.setattr(rejection, "residual", lambda wanted, proposed: wanted)
    assert chi2(sampled(rejecting)) > 2 * LIMIT


def test_acceptance_and_residual_of_the_worked_example():
    p, q = WANTED[0], PROPOSED[0]
    fine = (torch.arange(600, dtype=torch.float64) + 0.5) / 600  # what the uniform of a draft may be
    share = [
        sum(verdict(torch.tensor([t]), q[None], p.repeat(2, 1), torch.stack((u, u)))[0] for u in fine) / 600
        for t in range(3)
    ]
    assert share == pytest.approx([0.8333, 1.0, 1.0], abs=2e-3)
    assert float(torch.tensor(share, dtype=torch.float64) @ q) == pytest.approx(0.9, abs=2e-3)
    assert (residual(p, q) > 0).tolist() == [False, False, True]
    coupling = draw(p.expand(600, 3), fine)
    assert float((coupling == 0).double().mean()) == pytest.approx(0.5, abs=2e-3)


def test_equal_distributions_always_stand_and_leave_p_as_residual():
    p = WANTED[1]
    assert residual(p, p).tolist() == p.tolist()
    uniforms = torch.tensor([1 - 2**-53, 0.3], dtype=torch.float64)
    assert verdict(torch.tensor([2]), p[None], p.repeat(2, 1), uniforms)[0] == 1


def test_a_token_that_the_target_forbids_never_stands():
    p, q = torch.tensor([[0.0, 1.0], [0.5, 0.5]]), torch.tensor([[1.0, 0.0]])
    assert verdict(torch.tensor([0]), q, p, torch.zeros(2, dtype=torch.float64)) == (0, 1)


class Slots(DFlashDrafter):
    """The same distributions for every block: PROPOSED, whatever came before."""

    def __init__(self, config: DrafterConfig, head: torch.Tensor) -> None:
        super().__init__(config)
        self.answer = (torch.linalg.pinv(head) @ PROPOSED.log().float().T).T

    def forward(self, block_embeddings, taps, positions, masks, cache=None):
        super().forward(block_embeddings, taps, positions, masks, cache)
        return torch.cat((self.answer[:1], self.answer))[None]


def markov_target():
    """A real Qwen3 whose layers add nothing: the last token alone decides, by WANTED."""
    config = Qwen3Config(
        vocab_size=3,
        hidden_size=4,
        intermediate_size=4,
        num_hidden_layers=3,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=4,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    model = Qwen3ForCausalLM(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "o_proj" in name or "down_proj" in name:
                parameter.zero_()
        model.model.embed_tokens.weight.copy_(torch.eye(3, 4))
        model.lm_head.weight.copy_(torch.eye(3, 4).T.mul(0.5).matmul(WANTED.log().float()).T)
    return Target(model)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["plain", "coupling", "rejection", "tree"])
def test_the_real_loops_draw_from_a_real_target(way):
    target = markov_target()
    config = drafter_config_for(target.config, num_layers=1, block_size=DEPTH + 1, mask_token_id=2)
    drafter = Slots(config, target.head).eval()

    def text(seed):
        if way == "plain":
            return decode_plain(target, [START], max_new_tokens=LENGTH, sampling=Sampling(seed=seed))
        if way == "tree":
            settings = Sampling(seed=seed)
            return decode_tree(target, drafter, [START], max_new_tokens=LENGTH, budget=9, sampling=settings)
        settings = Sampling(seed=seed, method=way)
        return decode_chain(target, drafter, [START], max_new_tokens=LENGTH, sampling=settings)

    decoded = [text(seed) for seed in range(4000)]
    assert chi2([one.token_ids for one in decoded]) < LIMIT
    if way != "plain":
        assert sum(len(one.rounds) for one in decoded) < 0.9 * 3 * len(decoded)  # drafts did stand
