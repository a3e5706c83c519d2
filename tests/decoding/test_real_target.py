"""Chains and trees on the embedded target: token for token its own text, in float32, for 50 prompts."""

import pytest
import torch

from dflash_lightning.decoding.chain import decode_chain
from dflash_lightning.decoding.plain import decode_plain
from dflash_lightning.decoding.tree_verify import decode_tree
from dflash_lightning.drafter.model import DFlashDrafter
from dflash_lightning.target.embedded import EMBEDDED, find_gguf
from dflash_lightning.target.geometry import drafter_config_for
from dflash_lightning.target.loading import load_target, load_tokenizer

TASKS = ["Name three facts about {}.", "Write a line about {}.", "Why do people like {}?"]
TASKS += ["Explain {} to a child.", "List what one needs for {}."]
THINGS = ["rain", "planets", "bread", "music", "the sea", "chess", "bees", "winter", "bridges", "maps"]
QUESTIONS = [task.format(thing) for task in TASKS for thing in THINGS]
BUDGETS = [0, 1, 3, 8, 32]
LENGTH = 10


class HeadRowDrafter(DFlashDrafter):
    """Points at the head's row of the wanted token: right often, not always, since other rows are longer."""

    head: torch.Tensor
    answers: torch.Tensor

    def forward(self, block_embeddings, taps, positions, masks, cache=None):
        super().forward(block_embeddings, taps, positions, masks, cache)
        slots = positions[0, -block_embeddings.shape[1] :].clamp(max=len(self.answers) - 1)
        return self.head[self.answers[slots]][None]


@pytest.fixture(scope="module")
def embedded():
    try:
        find_gguf()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    return load_target(EMBEDDED, dtype=torch.float32), load_tokenizer(EMBEDDED)


def prompt_of(tokenizer, question):
    turns = [{"role": "user", "content": question}]
    text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    return tokenizer(text, add_special_tokens=False).input_ids


def skilled_drafter(target, prompt, text):
    """Wrong at every fifth token of the text."""
    config = drafter_config_for(target.config, num_layers=1, block_size=8, mask_token_id=5)
    drafter = HeadRowDrafter(config)
    drafter.head = target.head
    wrong_sometimes = [token if index % 5 else 7 for index, token in enumerate(text)]
    drafter.answers = torch.tensor([*prompt, *wrong_sometimes])
    return drafter


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_text_is_the_real_targets_own(embedded, task):
    """Ten prompts a task; every prompt by a chain and by trees of all budgets."""
    target, tokenizer = embedded
    lengths = {name: [] for name in ("chain", *BUDGETS)}
    for thing in THINGS:
        prompt = prompt_of(tokenizer, task.format(thing))
        settings = {"max_new_tokens": LENGTH, "stop_ids": [tokenizer.eos_token_id]}
        plain = decode_plain(target, prompt, **settings)
        drafter = skilled_drafter(target, prompt, plain.token_ids)
        decoded = {"chain": decode_chain(target, drafter, prompt, **settings)} | {
            budget: decode_tree(target, drafter, prompt, budget=budget, **settings) for budget in BUDGETS
        }
        for name, one in decoded.items():
            assert one.token_ids == plain.token_ids, (thing, name)
            lengths[name].append(one.tau)
    mean = {name: sum(taus) / len(taus) for name, taus in lengths.items()}
    assert mean[0] == 1.0
    assert 1.5 < mean["chain"] < 8.0  # some drafts were taken, some were not
    assert mean[1] < mean[32]


@pytest.mark.slow
def test_an_untrained_drafter_costs_rounds_and_no_text(embedded):
    target, tokenizer = embedded
    prompt = prompt_of(tokenizer, QUESTIONS[0])
    config = drafter_config_for(target.config, num_layers=2, block_size=8, mask_token_id=5)
    plain = decode_plain(target, prompt, max_new_tokens=40)
    for decoded in (
        decode_chain(target, DFlashDrafter(config), prompt, max_new_tokens=40),
        decode_tree(target, DFlashDrafter(config), prompt, max_new_tokens=40, budget=8),
    ):
        assert decoded.token_ids == plain.token_ids


def test_there_are_fifty_prompts():
    assert len(set(QUESTIONS)) == 50
