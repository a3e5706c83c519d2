"""A drafter that has seen a text drafts it: spec/dflash.md 6.40, through the real trainer and decoder."""

import json

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from dflash_lightning.data.prepare import PrepareConfig, prepare
from dflash_lightning.decoding.chain import decode_chain
from dflash_lightning.decoding.plain import decode_plain
from dflash_lightning.objective.kinds import CrossEntropy
from dflash_lightning.plan.config import PlanConfig
from dflash_lightning.training.build import DrafterShape
from tests.runs import toy_data, toy_module, toy_trainer
from tests.toy import MASK

PROMPTS = [[5, 9, 13, 17, 21, 25], [6, 10, 14, 18, 22, 26], [7, 11, 15, 19, 23, 27], [8, 12, 16, 20, 24, 28]]
NEW_TOKENS = 34


@pytest.mark.slow
def test_a_memorised_text_is_drafted_whole_blocks_at_a_time(tmp_path, toy_target):
    from dflash_lightning.target.loading import load_target

    target = load_target(toy_target, dtype=torch.float32)
    texts = [decode_plain(target, prompt, max_new_tokens=NEW_TOKENS).token_ids for prompt in PROMPTS]
    assert len({tuple(text) for text in texts}) == 4
    rows = tmp_path / "rows.jsonl"
    with rows.open("w") as file:
        for prompt, text in zip(PROMPTS, texts, strict=True):
            mask = [0] * len(prompt) + [1] * len(text)
            file.write(json.dumps({"input_ids": [*prompt, *text], "loss_mask": mask}) + "\n")
    tokenizer = PreTrainedTokenizerFast.from_pretrained(toy_target)
    config = PrepareConfig(
        input=(str(rows),), output=str(tmp_path / "store"), validation_share=0.0, workers=1
    )
    prepare(config, tokenizer)

    plan = PlanConfig(edges=(40,), max_tokens=160, max_rows=4)
    data = toy_data(tmp_path / "store", plan=plan, num_anchors=64)
    module = toy_module(
        toy_target,
        drafter=DrafterShape(num_layers=2, target_layer_ids=[1, 3, 5]),
        objective=CrossEntropy(gamma=2.0),
        num_anchors=64,
        lr=3e-3,
        warmup_fraction=0.0,
        min_lr_fraction=1.0,
    )
    trainer = toy_trainer(tmp_path, max_epochs=None, max_steps=120, accumulate_grad_batches=1)
    trainer.fit(module, data)

    assert module.last_totals.ratios()["train/loss"] < 0.05
    assert module.last_totals.ratios()["train/accuracy"] == 1.0
    drafter = module.drafter.eval()
    assert drafter.config.mask_token_id == MASK
    for prompt, text in zip(PROMPTS, texts, strict=True):
        decoded = decode_chain(module.target, drafter, prompt, max_new_tokens=NEW_TOKENS)
        assert decoded.token_ids == tuple(text)
        # 1 token from the prefill, 8 whole blocks of 4, then what is left of the text
        assert decoded.rounds == (4, 4, 4, 4, 4, 4, 4, 4, 1)
