"""Hidden states from disk against running the target: what a training step saves, and what it costs on disk.

    python cli.py prepare --hidden-states --config configs/demo.yaml --output data/demo-states
    python benchmarks/hidden_states.py --states data/demo-states

One process takes batches of the demo's first epoch one by one. Of each it times the target's forward pass,
the read from disk (first with checksums, then without) and the drafter's step, one behind the other, so that
a busy machine slows all of them; it prints medians and their ratios.
"""

import argparse
import time
from typing import Any

import numpy as np
import torch

from dflash_lightning.data.batch import TokenBatch
from dflash_lightning.data.collate import AnchorRule, BatchDataset
from dflash_lightning.data.datamodule import DFlashDataModule
from dflash_lightning.drafter.model import DFlashDrafter
from dflash_lightning.objective.kinds import CrossEntropy
from dflash_lightning.plan.config import PlanConfig
from dflash_lightning.plan.windows import RankBatch
from dflash_lightning.target.hidden_states import TargetStates
from dflash_lightning.target.loading import load_config, load_tokenizer
from dflash_lightning.target.stored.reading import StoredStates
from dflash_lightning.training.build import DrafterShape, TargetSettings, build_target, drafter_config
from dflash_lightning.training.forward import draft_blocks
from dflash_lightning.training.prefetch.stored_states import read_states

TARGET = "smollm2-135m-instruct"
TAPS = (9, 27)
PLAN = PlanConfig(edges=(64, 96, 144, 208, 304, 704), max_tokens=704, max_rows=2)
WARM_UP = 2


class Demo:
    """What configs/demo.yaml trains, without a Trainer."""

    def __init__(self, store: str) -> None:
        self.data = DFlashDataModule(store, plan=PLAN, block_size=4, num_anchors=32)
        self.data.setup("validate")
        rule = AnchorRule(32, "batch_max", seed=0, epoch=0)
        self.rows = BatchDataset(self.data.store, "train", rule, pad_token_id=0)
        self.target = build_target(TARGET, TargetSettings(), torch.device("cpu"))
        shape = DrafterShape(num_layers=2, target_layer_ids=list(TAPS))
        names = load_config(TARGET), load_tokenizer(TARGET)
        self.drafter = DFlashDrafter(drafter_config(*names, shape, block_size=4, mask_token=5))
        self.optimizer = torch.optim.AdamW(self.drafter.parameters(), lr=1e-3)

    def batch(self, i: int) -> TokenBatch:
        plan = self.data.epochs.plan(0)
        return self.rows[RankBatch(plan.batch(i), int(plan.bucket[i]), int(plan.padded_length[i]))]

    def step(self, batch: TokenBatch, states: TargetStates) -> None:
        parts: dict[str, Any] = {"target": self.target, "drafter": self.drafter, "head_chunk": 512}
        with torch.autocast("cpu", torch.bfloat16):
            outcome = draft_blocks(batch, states, objective=CrossEntropy(gamma=1.0), **parts)
        (outcome.numerator / outcome.weight.sum()).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def difference(ran: TargetStates, read: TargetStates, batch: TokenBatch) -> float:
    """Mean |difference| / mean |state| over the real tokens."""
    real = torch.arange(batch.input_ids.shape[1]) < batch.lengths[:, None]
    one, other = ran.taps[real].float(), read.taps[real].float()
    return float((one - other).abs().mean() / one.abs().mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--states", default="data/demo-states", help="folder of hidden states of the demo")
    parser.add_argument("--store", default="data/demo", help="token store of the demo")
    parser.add_argument("--batches", type=int, default=40, help="batches to time")
    options = parser.parse_args()
    demo, stored = Demo(options.store), StoredStates.open(options.states)
    seconds, tokens, differences = [], 0, []
    for i in range(WARM_UP + options.batches):
        batch = demo.batch(i)
        stamps = [time.perf_counter()]
        ran = demo.target.tapped_states(batch.input_ids, TAPS)
        stamps.append(time.perf_counter())
        read = read_states(stored, batch, TAPS, final=False)
        stamps.append(time.perf_counter())
        read_states(stored, batch, TAPS, final=False)
        stamps.append(time.perf_counter())
        demo.step(batch, read)
        seconds.append(np.diff([*stamps, time.perf_counter()]))
        tokens += int(batch.lengths.sum())
        differences.append(difference(ran, read, batch))
    target, first, later, step = np.median(seconds[WARM_UP:], axis=0) * 1e3
    print(
        f"{stored.manifest.token_bytes:,} bytes a token on disk; {tokens / len(seconds):.0f} tokens a batch"
    )
    print(f"medians of {options.batches} batches: target {target:.1f} ms, drafter's step {step:.1f} ms")
    print(f"read, first time (checksums) {first:.2f} ms, later {later:.2f} ms")
    print(f"target / read: {target / first:.0f} at first, {target / later:.0f} later")
    gains = [(target + step) / (read + step) for read in (first, later)]
    print(f"step with the target / step from disk: {gains[0]:.2f} in the first epoch, {gains[1]:.2f} later")
    mean, worst = np.mean(differences), max(differences)
    print(f"mean difference / mean size of a state: {mean:.1e}, in the worst batch {worst:.1e}")


if __name__ == "__main__":
    main()
