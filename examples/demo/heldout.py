"""How well a drafter drafts on prompts it has not seen: real draft-and-verify decoding, and two baselines.

law   decoding is lossless, so the text is the target's own: the untrained drafter and prompt lookup are
      measured on the same text, by the rounds they would have made
"""

import json
import logging
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.progress import track

from dflash_lightning.decoding.acceptance import AcceptanceLength, acceptance_length
from dflash_lightning.decoding.chain import decode_chain
from dflash_lightning.decoding.lookup import lookup_rounds
from dflash_lightning.decoding.teacher import teacher_forced_streaks
from dflash_lightning.decoding.walk import walk_rounds
from dflash_lightning.drafter.model import DFlashDrafter
from dflash_lightning.export.formats import load_drafter
from dflash_lightning.training.module import DFlashModule

log = logging.getLogger(__name__)
NEW_TOKENS = 48
EVERY = 3  # of the prompts; decoding them one by one takes its time


@dataclass(frozen=True)
class Heldout:
    """Acceptance lengths on the held-out prompts."""

    before: AcceptanceLength
    """The drafter as it was before the first step."""
    after: AcceptanceLength
    """The exported drafter, decoding."""
    lookup: AcceptanceLength
    """Prompt lookup."""


def heldout_report(module: DFlashModule, exported: Path, prompts: Path) -> Heldout:
    """Decode every prompt with the exported drafter; walk the other two over the same texts."""
    target, tokenizer = module.target, module.tokenizer
    assert target is not None
    untrained = DFlashDrafter(module.drafter_config, seed=module.seed).eval()
    trained = load_drafter(exported, dtype=torch.bfloat16)
    block_size = trained.config.block_size
    lines = prompts.read_text(encoding="utf-8").splitlines()[::EVERY]
    rows = [json.loads(line)["messages"] for line in lines]
    before, after, lookup = [], [], []
    for messages in track(rows, description="held-out prompts"):
        ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
        text = decode_chain(
            target, trained, ids, max_new_tokens=NEW_TOKENS, stop_ids=[tokenizer.eos_token_id]
        )
        whole = [*ids, *text.token_ids]
        after.append(text.rounds)
        before.append(walk_rounds(teacher_forced_streaks(target, untrained, whole, len(ids))))
        lookup.append(lookup_rounds(ids, text.token_ids, block_size=block_size))
    return Heldout(acceptance_length(before), acceptance_length(after), acceptance_length(lookup))
