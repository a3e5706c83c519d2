"""FOLDER INPUTS ANSWER SAVED: an exported folder as the `speculators` package reads it, and saves it again.

The package draws anchors at random: a loss mask of one position leaves it one choice.
"""

import sys

import torch
from safetensors.torch import load_file, save_file
from speculators.models.dflash import DFlashDraftModel, DFlashSpeculatorConfig

folder, inputs_path, answer_path, saved = sys.argv[1:]
inputs = load_file(inputs_path)
config = DFlashSpeculatorConfig.from_pretrained(folder)
config.transformer_layer_config._attn_implementation = "eager"
drafter = DFlashDraftModel.from_pretrained(folder, config=config, dtype=torch.float32).eval()
ids, taps = inputs["ids"], inputs["taps"]
length, anchor = ids.shape[1], int(inputs["anchor"])
mask = torch.zeros(1, length)
mask[0, anchor] = 1
with torch.no_grad():
    _, logits, *_ = drafter._backbone_forward(
        taps,
        ids,
        mask,
        torch.zeros(1, length, config.transformer_layer_config.hidden_size),
        torch.zeros(1, length, dtype=torch.long),
        max_anchors=1,
    )
save_file({"logits": logits.contiguous()}, answer_path)
drafter.to(torch.bfloat16).save_pretrained(saved)
