"""What only a GPU can show, in one run of minutes: flex attention against the dense reference in bf16, the
target on a side stream against inline, tokens per second and peak memory. At toy size on a CPU it shows that
the script runs.

    python -m benchmarks.gpu              # a GPU: a target shaped like Qwen3-1.7B with random weights
    python -m benchmarks.gpu --toy        # anywhere, seconds
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

import torch

from benchmarks.gpu.kernels import compare
from benchmarks.gpu.overlap import train
from benchmarks.gpu.shapes import TOY, Shape, save_store, save_target
from dflash_lightning.drafter.mask import Attention


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--toy", action="store_true", help="tiny shapes; the default without a GPU")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args()
    cuda = torch.cuda.is_available()
    shape = TOY if options.toy or not cuda else Shape()
    attention: Attention = "flex" if cuda else "sdpa"
    begun = time.perf_counter()
    found = {"device": torch.cuda.get_device_name() if cuda else "CPU", "torch": torch.__version__}
    print(f"{found['device']}, torch {found['torch']}, {shape}")
    with tempfile.TemporaryDirectory() as folder:
        target = save_target(Path(folder) / "target", shape)
        store = save_store(Path(folder) / "data", target, shape)
        ways = {}
        for way, depth in (("target inline", 0), ("target ahead", 2)):
            ways[way], module = train(target, store, shape, depth=depth, attention=attention)
            print(f"{way:<14} {'  '.join(f'{name} {value:.4g}' for name, value in ways[way].items())}")
        ratio = ways["target inline"]["step_s"] / ways["target ahead"]["step_s"]
        print(f"inline / ahead: {ratio:.3f} x the time of a step")
        assert module.target is not None
        device = torch.device("cuda" if cuda else "cpu")
        kernels = compare(module.target, module.drafter_config, shape, device)
    for name, value in kernels.items():
        print(f"{name}: {value:.3g}")
    print(f"{time.perf_counter() - begun:.0f} s")
    if options.json:
        options.json.write_text(json.dumps(found | {"ways": ways, "kernels": kernels}, indent=1))


if __name__ == "__main__":
    main()
