"""Greedy chain decoding of the embedded target: token for token its own text, in float32."""

import pytest
import torch

from dflash_lightning.decoding.chain import decode_chain
from dflash_lightning.decoding.plain import decode_plain
from dflash_lightning.drafter.model import DFlashDrafter
from dflash_lightning.target.embedded import EMBEDDED, find_gguf
from dflash_lightning.target.geometry import drafter_config_for
from dflash_lightning.target.loading import load_target, load_tokenizer

QUESTIONS = ["Name three planets.", "Write a line about rain."]
LENGTH = 40


class HeadRowDrafter(DFlashDrafter):
    """Points at the head's row of the wanted token: right often, not always, since other rows are longer."""

    head: torch.Tensor
    answers: torch.Tensor

    def forward(self, block_embeddings, taps, positions, masks, cache=None):
        super().forward(block_embeddings, taps, positions, masks, cache)
        slots = positions[0, -block_embeddings.shape[1] :].clamp(max=len(self.answers) - 1)
        return self.head[self.answers[slots]][None]


@pytest.mark.slow
@pytest.mark.parametrize("question", QUESTIONS)
def test_text_is_the_real_targets_own(question):
    try:
        find_gguf()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    target, tokenizer = load_target(EMBEDDED, dtype=torch.float32), load_tokenizer(EMBEDDED)
    turns = [{"role": "user", "content": question}]
    text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    prompt = tokenizer(text, add_special_tokens=False).input_ids
    stop_ids = [tokenizer.eos_token_id]
    plain = decode_plain(target, prompt, max_new_tokens=LENGTH, stop_ids=stop_ids)

    config = drafter_config_for(target.config, num_layers=2, block_size=8, mask_token_id=5)
    skilled = HeadRowDrafter(config)
    skilled.head = target.head
    wrong_sometimes = [token if index % 5 else 7 for index, token in enumerate(plain.token_ids)]
    skilled.answers = torch.tensor([*prompt, *wrong_sometimes])
    for drafter in (DFlashDrafter(config), skilled):
        decoded = decode_chain(target, drafter, prompt, max_new_tokens=LENGTH, stop_ids=stop_ids)
        assert decoded.token_ids == plain.token_ids
    assert 1.5 < decoded.tau < 8.0  # some drafts were taken, some were not
