"""FOLDER INPUTS ANSWER: an exported folder as a stranger reads it, with torch and transformers alone.

Runs under whichever transformers is first on the path: no import of this project.
"""

import sys

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoModel, DynamicCache
from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding

folder, inputs_path, answer_path = sys.argv[1:]
inputs = load_file(inputs_path)
drafter = AutoModel.from_pretrained(folder, trust_remote_code=True, dtype=torch.float32).eval()
block, head = inputs["block"], inputs["head"]
taps = inputs["taps"][:, : int(inputs["anchor"])]  # the context is what lies before the anchor
slots, context = block.shape[1], taps.shape[1]
positions = torch.arange(context + slots)[None]
with torch.no_grad():
    at_once = drafter(noise_embedding=block, target_hidden=taps, position_ids=positions)
    cache, start, first = DynamicCache(), 0, context // 2
    for stop in (first, context):  # as in decoding: the second round brings the new context only
        in_parts = drafter(
            noise_embedding=block,
            target_hidden=taps[:, start:stop],
            position_ids=positions[:, start : stop + slots],
            past_key_values=cache,
            use_cache=True,
        )
        cache.crop(-slots)
        start = stop
save_file(
    {
        "logits": (at_once @ head.T).contiguous(),
        "logits_with_cache": (in_parts @ head.T).contiguous(),
        "inv_freq": Qwen3RotaryEmbedding(drafter.config).inv_freq.contiguous(),
        "taps": torch.tensor(drafter.target_layer_ids),
        "block_size_and_mask": torch.tensor([drafter.block_size, drafter.mask_token_id]),
    },
    answer_path,
    metadata={"transformers": transformers.__version__},
)
