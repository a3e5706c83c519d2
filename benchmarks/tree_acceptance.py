"""Streaks of real texts in trees of drafts: counted for all anchors at once, against building every tree.

    python benchmarks/tree_acceptance.py [--anchors 4096] [--budgets 16 64] [--rounds 5]

Each budget alone, then all in one go, as validation logs them. Both start from the same top tokens of every
slot, of a drafter that is right about itself: logits N(0, 3^2) over 2,000 tokens, 15 slots, real tokens drawn
from them. Building means the heap builder and a walk down the tree, one anchor after the other. Times are
processor time on one thread, the best of `rounds` for the count; all answers are compared.
"""

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from dflash_lightning.decoding.tree import build_tree
from dflash_lightning.objective.marginals import Marginals, best_of
from dflash_lightning.objective.tree_acceptance import tree_streaks

SLOTS, VOCABULARY = 15, 2000


def drafts(anchors: int, k: int) -> tuple[Marginals, Tensor]:
    """Top tokens of every slot, and real tokens."""
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(anchors, SLOTS, VOCABULARY, generator=generator)
    drawn = torch.multinomial(logits.softmax(-1).flatten(0, 1), 1, generator=generator)
    return best_of(logits, k=k), drawn.view(anchors, SLOTS)


def one_by_one(best: Marginals, labels: Tensor, budget: int) -> list[int]:
    """A tree for every anchor, and the real tokens as far as it has them."""
    found = []
    tops = (tensor[..., :budget] for tensor in best)
    for log_probs, token_ids, text in zip(*tops, labels, strict=True):
        children = build_tree(log_probs.tolist(), token_ids.tolist(), budget).children()
        node = streak = 0
        for token in text.tolist():
            if (node, token) not in children:
                break
            node, streak = children[node, token], streak + 1
        found.append(streak)
    return found


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    started = time.process_time()
    result = work()
    return time.process_time() - started, result


def compare(anchors: int, budgets: list[int], rounds: int) -> dict[str, object]:
    """All these budgets counted in one go, against a tree for each anchor and budget."""
    best, labels = drafts(anchors, max(budgets))
    supervised = torch.ones_like(labels, dtype=torch.bool)
    counts = [timed(lambda: tree_streaks(best, labels, supervised, budgets=budgets)) for _ in range(rounds)]
    built = [timed(lambda m=budget: one_by_one(best, labels, m)) for budget in budgets]
    fast, slow = min(seconds for seconds, _ in counts), sum(seconds for seconds, _ in built)
    for column, (_, walked) in enumerate(built):
        assert counts[0][1][:, column].tolist() == walked
    return {
        "anchors": anchors,
        "budgets": budgets,
        "streaks": [round(sum(walked) / anchors, 3) for _, walked in built],
        "counted_ms": round(1e3 * fast, 2),
        "built_ms": round(1e3 * slow, 1),
        "ratio": round(slow / fast, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--anchors", type=int, default=4096)
    parser.add_argument("--budgets", type=int, nargs="+", default=[16, 64])
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    torch.set_num_threads(1)
    for budgets in (*([budget] for budget in given.budgets), given.budgets):
        print(json.dumps(compare(given.anchors, budgets, given.rounds)))


if __name__ == "__main__":
    main()
