"""Target forward for training: hooks and early exit, against `output_hidden_states=True` on the whole model.

    python benchmarks/early_exit.py [--target smollm2-135m-instruct] [--rows 4] [--length 512]

Prints ratios of one run; each way runs in its own process, so that peaks of memory do not mix. Both ways
give the
same tapped states, bit for bit. The last tap of the default formula is at depth - 3, so early exit saves two
or three layers of the depth, the head, its logits, and all hidden states nobody reads.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from transformers.utils import logging

from dflash_lightning.drafter.config import tap_layers
from dflash_lightning.target.embedded import EMBEDDED
from dflash_lightning.target.loading import Target, load_target

STATUS = Path("/proc/self/status")
WAYS = ("early_exit", "whole_model")


def main() -> None:
    options = parse()
    if options.way:
        print(json.dumps(measure(options)))
        return
    results = {way: in_own_process(way) for way in WAYS}
    ours, theirs = (results[way] for way in WAYS)
    print(
        f"target {ours['target']}: {options.rows} rows x {options.length} tokens, "
        f"taps {ours['taps']}, float32"
    )
    for way, result in results.items():
        print(
            f"  {way:<12} {result['seconds']:7.3f} s   "
            f"{result['peak_mib']:8.0f} MiB above the loaded model   checksum {result['checksum']:.6e}"
        )
    print(
        f"whole model / early exit: {theirs['seconds'] / ours['seconds']:.2f} x the time, "
        f"{theirs['peak_mib'] / ours['peak_mib']:.1f} x the memory"
    )
    if ours["checksum"] != theirs["checksum"]:
        sys.exit("the two ways disagree about the tapped states")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--target", default=None, help="default: the embedded target, else a random one of its shape"
    )
    parser.add_argument("--rows", type=int, default=4)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--taps", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    return parser.parse_args()


def in_own_process(way: str) -> dict:
    command = [sys.executable, __file__, *sys.argv[1:], "--way", way]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.splitlines()[-1])


def measure(options: argparse.Namespace) -> dict:
    logging.disable_progress_bar()
    target, name = open_target(options.target)
    taps = tap_layers(target.depth, options.taps)
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, target.vocab_size, (options.rows, options.length), generator=generator)
    forward = {"early_exit": early_exit, "whole_model": whole_model}[options.way](target, taps)
    forward(ids[:1, :8])  # kernels and allocator warm up on a small input
    reset_peak()  # loading the weights may have taken more than the forward pass does
    before = peak_mib()
    states, seconds = forward(ids), []
    used = peak_mib() - before
    for _ in range(options.repeats):
        started = time.perf_counter()
        states = forward(ids)
        seconds.append(time.perf_counter() - started)
    return {
        "target": name,
        "taps": list(taps),
        "seconds": min(seconds),
        "peak_mib": used,
        "checksum": states.double().sum().item(),
    }


def open_target(name: str | None) -> tuple[Target, str]:
    try:
        return load_target(name or EMBEDDED, dtype=torch.float32), name or EMBEDDED
    except FileNotFoundError:
        if name:
            raise
    from transformers import LlamaConfig, LlamaForCausalLM

    shape = LlamaConfig(
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        tie_word_embeddings=True,
    )
    return Target(LlamaForCausalLM(shape)), "random weights in the shape of " + EMBEDDED


def early_exit(target: Target, taps: tuple[int, ...]) -> Callable[[Tensor], Tensor]:
    return lambda ids: target.tapped_states(ids, taps).taps


def whole_model(target: Target, taps: tuple[int, ...]) -> Callable[[Tensor], Tensor]:
    @torch.no_grad()
    def forward(ids: Tensor) -> Tensor:
        every = target.model(ids, output_hidden_states=True, use_cache=False).hidden_states
        return torch.cat([every[tap + 1] for tap in taps], dim=-1)

    return forward


def peak_mib() -> float:
    """Largest resident size since the last reset, which only Linux offers; elsewhere since the start."""
    if STATUS.exists():
        return int(STATUS.read_text().split("VmHWM:")[1].split()[0]) / 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # macOS counts bytes


def reset_peak() -> None:
    if STATUS.exists():
        (STATUS.parent / "clear_refs").write_text("5")


if __name__ == "__main__":
    main()
