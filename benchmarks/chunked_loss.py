"""Head and loss in chunks against all logits at once: peak memory, time, and the same numbers.

    python benchmarks/chunked_loss.py [--chunk 512] [--rounds 2]

4,096 positions of width 576 against 49,152 tokens, fp32 (SmolLM2-135M's head), forward and backward with a
weight per position and a frozen head. Every variant runs in a process of its own; memory is the peak of the
resident set above what it was with the inputs in place and a small call done. Times are the best of `rounds`.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import LinearCrossEntropyOptions
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from dflash_lightning.objective import head_loss

POSITIONS, HIDDEN, VOCABULARY = 4096, 576, 49_152
LIMIT = 4.0
Loss = Callable[[Tensor, Tensor, Tensor, Tensor, int], Tensor]


def ours(hidden: Tensor, head: Tensor, labels: Tensor, weights: Tensor, chunk: int) -> Tensor:
    return (head_loss(hidden, head, labels, chunk=chunk).loss * weights).sum()


def plain(hidden: Tensor, head: Tensor, labels: Tensor, weights: Tensor, chunk: int) -> Tensor:
    return (F.cross_entropy(hidden @ head.T, labels, reduction="none") * weights).sum()


def recomputed(hidden: Tensor, head: Tensor, labels: Tensor, weights: Tensor, chunk: int) -> Tensor:
    """The same chunks, but their logits are made a second time in backward: three products instead of two."""
    rows = [tensor.split(chunk) for tensor in (hidden, labels, weights)]
    sums = [
        checkpoint(plain, h, head, x, w, chunk, use_reentrant=False) for h, x, w in zip(*rows, strict=True)
    ]
    return torch.stack(sums).sum()


def torch_chunked(hidden: Tensor, head: Tensor, labels: Tensor, weights: Tensor, chunk: int) -> Tensor:
    """torch's own chunked loss, where it takes per-position weights: it gives no argmax, and no accuracy."""
    options = LinearCrossEntropyOptions(batch_chunk_size=chunk)
    return (F.linear_cross_entropy(hidden, head, labels, reduction="none", options=options) * weights).sum()


VARIANTS: dict[str, Loss] = {
    "chunked": ours,
    "plain": plain,
    "recomputed": recomputed,
    "linear_cross_entropy": torch_chunked,
}


def measure(name: str, chunk: int) -> dict[str, float]:
    """Runs in a process of its own. The gradient comes back as two projections, which identify it."""
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(POSITIONS, HIDDEN, generator=generator).requires_grad_()
    head = torch.randn(VOCABULARY, HIDDEN, generator=generator).mul_(0.05)
    labels = torch.randint(VOCABULARY, (POSITIONS,), generator=generator)
    weights = torch.rand(POSITIONS, generator=generator)
    small = [tensor[:8] for tensor in (labels, weights)]
    VARIANTS[name](hidden[:8], head, *small, chunk).backward()
    hidden.grad = None
    before, started = _peak_mb(), time.perf_counter()
    loss = VARIANTS[name](hidden, head, labels, weights, chunk)
    loss.backward()
    seconds, after = time.perf_counter() - started, _peak_mb()
    assert hidden.grad is not None
    probe = torch.randn(POSITIONS, HIDDEN, generator=generator)
    return {
        "seconds": seconds,
        "mb": after - before,
        "loss": loss.item(),
        "grad_norm": hidden.grad.norm().item(),
        "grad_probe": (hidden.grad * probe).sum().item(),
    }


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # Linux counts in kB


def _in_own_process(name: str, chunk: int) -> dict[str, float]:
    command = [sys.executable, __file__, "--variant", name, "--chunk", str(chunk)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    result: dict[str, float] = json.loads(done.stdout)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--chunk", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--variant", choices=VARIANTS, help="measure this one, here, and print JSON")
    args = parser.parse_args()
    if args.variant:
        print(json.dumps(measure(args.variant, args.chunk)))
        return

    rounds = [{name: _in_own_process(name, args.chunk) for name in VARIANTS} for _ in range(args.rounds)]
    best = {name: min((run[name] for run in rounds), key=lambda run: run["seconds"]) for name in VARIANTS}
    mine = best["chunked"]
    print(f"{POSITIONS:,} x {VOCABULARY:,} logits, chunk {args.chunk}, threads {torch.get_num_threads()}")
    print(
        f"{'':22}{'peak MB':>9}{'s':>8}{'memory x':>10}{'time x':>8}{'loss':>14}{'|grad|':>12}{'probe':>12}"
    )
    for name, run in best.items():
        ratios = f"{run['mb'] / mine['mb']:10.2f}{run['seconds'] / mine['seconds']:8.2f}"
        numbers = f"{run['loss']:14.4f}{run['grad_norm']:12.6f}{run['grad_probe']:12.6f}"
        print(f"{name:22}{run['mb']:9.0f}{run['seconds']:8.2f}{ratios}{numbers}")
    saved = best["plain"]["mb"] / mine["mb"]
    for name in ("loss", "grad_norm", "grad_probe"):
        wanted = best["plain"][name]
        assert abs(mine[name] - wanted) <= 1e-4 * abs(wanted) + 1e-4, f"{name}: {mine[name]} against {wanted}"
    assert saved >= LIMIT, f"memory is only {saved:.1f} times lower than the plain loss's"
    print(f"peak memory {saved:.1f} times lower than plain (asked: {LIMIT:.0f}), same loss and gradient")


if __name__ == "__main__":
    main()
