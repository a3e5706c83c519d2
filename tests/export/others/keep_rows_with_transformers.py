"""ANSWER: what our cropping and compaction leave of a cache of whichever transformers is first on the path.

Position p of layer l holds the number 100 l + p, so that one sees where everything came from.
"""

import sys

import torch
import transformers
from safetensors.torch import save_file
from transformers import DynamicCache

from dflash_lightning.decoding.verify import crop_to, keep_rows

LAYERS, PAST, TREE = 2, 6, 7


def full_cache():
    cache = DynamicCache()
    for layer in range(LAYERS):
        numbers = 100.0 * layer + torch.arange(PAST + TREE)
        states = numbers.view(1, 1, -1, 1).expand(1, 2, -1, 3).contiguous()
        cache.update(states, -states, layer)
    return cache


def content(cache):
    keys, values = zip(*((layer.keys, layer.values) for layer in cache.layers), strict=True)
    assert all(
        torch.equal(k, -v) and k.shape[2] == cache.get_seq_length() for k, v in zip(keys, values, strict=True)
    )
    return torch.stack([k[0, 0, :, 0] for k in keys]).contiguous()


found = {}
for name, rows in {"chain": [0, 1, 2], "tree": [0, 2, 5], "root": [0], "all": list(range(TREE))}.items():
    cache = full_cache()
    keep_rows(cache, PAST, rows)
    found[name] = content(cache)
    for layer in range(LAYERS):  # the next round appends
        new = torch.full((1, 2, 1, 3), 100.0 * layer + 77)
        cache.update(new, -new, layer)
    found[f"{name}, next"] = content(cache)
for want in (0, 4, PAST + TREE, 99):
    cache = full_cache()
    crop_to(cache, want)
    found[f"crop to {want}"] = content(cache)
save_file(found, sys.argv[1], metadata={"transformers": transformers.__version__})
