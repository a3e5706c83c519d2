"""Several prompts at once on the embedded target, in float32: texts and rounds of one prompt at a time."""

import pytest
import torch

from dflash_lightning.data.template import ChatFormat
from dflash_lightning.decoding.batched import decode_batch
from dflash_lightning.decoding.chain import decode_chain
from dflash_lightning.decoding.plain import decode_plain
from dflash_lightning.drafter.model import DFlashDrafter
from dflash_lightning.evaluation.tokens import chat_ids
from dflash_lightning.target.embedded import EMBEDDED, find_gguf
from dflash_lightning.target.geometry import drafter_config_for
from dflash_lightning.target.loading import load_target, load_tokenizer

QUESTIONS = ["Name three planets.", "Write a line about rain.", "What is tea? Answer in one short sentence."]
LENGTH = 24


@pytest.mark.slow
def test_rows_of_the_real_target_are_as_if_alone():
    try:
        find_gguf()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    target, tokenizer = load_target(EMBEDDED, dtype=torch.float32), load_tokenizer(EMBEDDED)
    form = ChatFormat(tokenizer=tokenizer, template=tokenizer.chat_template, stop_ids=frozenset())
    prompts = [chat_ids(form, [{"role": "user", "content": text}]) for text in QUESTIONS]
    assert len(set(map(len, prompts))) == 3
    config = drafter_config_for(target.config, num_layers=2, block_size=4, mask_token_id=5)
    drafter = DFlashDrafter(config).eval()
    options = {"max_new_tokens": LENGTH, "stop_ids": [tokenizer.eos_token_id]}
    plain = [decode_plain(target, prompt, **options) for prompt in prompts]
    assert decode_batch(target, None, prompts, **options) == plain
    chains = decode_batch(target, drafter, prompts, **options)
    assert chains == [decode_chain(target, drafter, prompt, **options) for prompt in prompts]
    trees = decode_batch(target, drafter, prompts, budget=8, **options)
    assert [tree.token_ids for tree in trees] == [one.token_ids for one in plain]
