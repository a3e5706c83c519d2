"""`python -m dflash_lightning.export.reload FOLDER ANSWER`: the fresh process of `export --check`.

in    a folder; the probe, which its config decides
out   a file of hidden states [1, block_size, hidden_size] float32, one tensor for each way of reading
law   knows nothing of the checkpoint; with dflash.py in the folder it is also read as any program would read
      it, by AutoModel with trust_remote_code
"""

import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from dflash_lightning.drafter.config import DrafterConfig
from dflash_lightning.export.files import REMOTE_CODE_NAME
from dflash_lightning.export.formats import load_drafter

CONTEXT = 32
"""Context positions of the probe."""


def probe(config: DrafterConfig) -> tuple[Tensor, Tensor, Tensor]:
    """Block embeddings, taps and positions: random, and the same wherever they are made."""
    generator = torch.Generator().manual_seed(0)
    block = torch.randn(1, config.block_size, config.hidden_size, generator=generator)
    taps = torch.randn(1, CONTEXT, len(config.target_layer_ids) * config.hidden_size, generator=generator)
    return block, taps, torch.arange(CONTEXT + config.block_size)[None]


@torch.no_grad()
def answers(folder: Path) -> dict[str, Tensor]:
    drafter = load_drafter(
        folder, depth=sys.maxsize
    )  # no tap is refused for a depth that a config leaves out
    inputs = probe(drafter.config)
    found = {"dflash_lightning": drafter(*inputs, None)}
    if (folder / REMOTE_CODE_NAME).is_file():
        from transformers import AutoModel

        model = AutoModel.from_pretrained(folder, trust_remote_code=True, dtype=torch.float32)
        block, taps, positions = inputs
        found["transformers"] = model(noise_embedding=block, target_hidden=taps, position_ids=positions)
    return {reader: states.contiguous() for reader, states in found.items()}


if __name__ == "__main__":
    save_file(answers(Path(sys.argv[1])), sys.argv[2])
