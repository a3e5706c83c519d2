"""What all runs of the training study share: data, target, drafter shape, and the strategies.

in    the demo's chats (prepared here where that has not been done) and its target
out   Bench; STRATEGIES, name -> PlanConfig
law   every strategy trains on the same chats and makes about as many batches of them
"""

from dataclasses import dataclass, replace
from pathlib import Path

import torch

from benchmarks.ordering.states import CachedStates, cached_states
from dflash_lightning.data.store import TokenStore
from dflash_lightning.drafter.config import DrafterConfig
from dflash_lightning.main import main as cli
from dflash_lightning.objective.kinds import CrossEntropy
from dflash_lightning.plan import (
    DiversityFirst,
    PlanConfig,
    RandomOrder,
    Samples,
    Shuffle,
    WindowFirst,
    plan_batches_count,
)
from dflash_lightning.target.embedded import EMBEDDED
from dflash_lightning.target.loading import Target, load_config, load_target, load_tokenizer
from dflash_lightning.training.build import DrafterShape, drafter_config
from dflash_lightning.training.optimizer import AdamWConfig

STORE = Path("data/demo")
FOLDER = Path("runs/ordering")
TAPS = (9, 27)
ACCUMULATE = 4
BLOCKS = {"num_anchors": 8, "block_size": 4}
OBJECTIVE = CrossEntropy(gamma=1.0)
OPTIMIZER = AdamWConfig(lr=1e-3, warmup_fraction=0.05)
MAX_NORM = 1.0
PLAN = PlanConfig(edges=(64, 88, 112, 144, 196, 704), max_tokens=704, max_rows=8, max_block_tokens=0)
"""Six buckets, the last one with half of the batches, as in the documented mix; its block budget is off."""
STRATEGIES = {
    "credit": PLAN,
    "diversity_first": replace(PLAN, order=DiversityFirst()),
    "shuffle": replace(PLAN, order=Shuffle()),
    "documented": replace(PLAN, order=DiversityFirst(), packing=RandomOrder()),
    "window_first": replace(PLAN, packing=WindowFirst(window_batches=ACCUMULATE)),
}


@dataclass(frozen=True)
class Bench:
    """What all runs share."""

    target: Target
    store: TokenStore
    drafter: DrafterConfig
    states: dict[str, CachedStates]
    samples: Samples


def open_bench() -> Bench:
    if not STORE.exists():
        cli(["prepare", "--input", "examples/demo/chats.jsonl", "--target", EMBEDDED, "--output", str(STORE)])
    target, store = load_target(EMBEDDED, dtype=torch.bfloat16), TokenStore.open(STORE)
    shape = DrafterShape(num_layers=2, target_layer_ids=list(TAPS))
    config = drafter_config(
        load_config(EMBEDDED),
        load_tokenizer(EMBEDDED),
        shape,
        block_size=BLOCKS["block_size"],
        mask_token=5,
    )
    states = cached_states(FOLDER / "states.pt", target, store, TAPS)
    return Bench(target, store, config, states, store.samples("train"))


def matched(config: PlanConfig, samples: Samples) -> PlanConfig:
    """`config` with the token budget that makes about as many batches of the first epoch as PLAN does."""

    def batches(max_tokens: int) -> int:
        changed = replace(config, max_tokens=max_tokens)
        return plan_batches_count(samples, changed, **BLOCKS, seed=0, epoch=0)

    wanted = plan_batches_count(samples, PLAN, **BLOCKS, seed=0, epoch=0)
    budgets = range(PLAN.max_tokens, 2 * PLAN.max_tokens, 8)
    return replace(config, max_tokens=min(budgets, key=lambda budget: abs(batches(budget) - wanted)))
