"""Train the demo's drafter in several batch orders: same data, tokens and steps. Does the order matter?

    python -m benchmarks.ordering.train --seeds 0 1 2          # appends to runs/ordering/results.jsonl
    python -m benchmarks.ordering.train --summarize            # the tables

The target's hidden states of all chats are computed once and kept, so that a run trains the drafter alone.
The step is DFlashModule's own (draft_blocks, window sums, normalize_gradients, AdamWConfig) in a plain loop:
bf16 autocast, window of 4 batches, one process. The seed decides weights, order and anchors.

Strategies with another packing than the default's need another number of batches for the same chats. Their
token budget is moved until they need as many, so that every strategy makes the same steps on the same tokens.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch

from benchmarks.ordering.bench import FOLDER, PLAN, STRATEGIES, matched, open_bench
from benchmarks.ordering.report import print_report
from benchmarks.ordering.run import Run


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--strategies", nargs="+", choices=STRATEGIES, default=list(STRATEGIES))
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--results", type=Path, default=FOLDER / "results.jsonl")
    parser.add_argument("--summarize", action="store_true", help="print the tables of what is there")
    args = parser.parse_args()
    done = read_results(args.results)
    if not args.summarize:
        torch.set_num_threads(1)
        bench = open_bench()
        for seed in args.seeds:
            for name in args.strategies:
                key = {"strategy": name, "seed": seed, "epochs": args.epochs}
                if not any(key.items() <= run.items() for run in done):
                    config = STRATEGIES[name]
                    config = config if config.packing == PLAN.packing else matched(config, bench.samples)
                    run = Run(bench, config, seed)
                    done.append(key | run.train(args.epochs))
                    torch.save(run.drafter.state_dict(), args.results.parent / f"{name}-{seed}.pt")
                    append(args.results, done[-1])
    print_report(done)


def read_results(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def append(path: Path, result: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(result) + "\n")
    print(
        f"{result['strategy']} seed {result['seed']}: {result['steps']} steps, {result['seconds']} s, "
        f"loss {result['loss'][-1]}, held-out {result['validations'][-1]}",
        flush=True,
    )


if __name__ == "__main__":
    main()
