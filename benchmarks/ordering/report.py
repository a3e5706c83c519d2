"""The tables of the training study: every strategy over its seeds, and seed by seed against credit.

in    results of train.py, one dict a run
out   printed tables
law   a difference is called one only if its 95 % interval (Student's t over the seeds' pairs) leaves out zero
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.ordering.table import print_table, spread

REFERENCE = "credit"
T_95 = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57}
"""Two-sided 95 % points of Student's t by degrees of freedom."""
Run = Mapping[str, Any]


def second_half(run: Run, name: str) -> np.ndarray:
    """A column behind the steep first half of the descent, warm-up included."""
    return np.array(run[name][run["steps"] // 2 :], dtype=float)


def detrended_sd(values: np.ndarray) -> float:
    """Standard deviation around a straight line: the descent is no noise."""
    steps = np.arange(len(values))
    return float((values - np.polyval(np.polyfit(steps, values, 1), steps)).std())


def difference_sd(values: np.ndarray) -> float:
    """Of one step to the next, over sqrt(2): equals the standard deviation where steps are independent."""
    return float(np.diff(values).std() / np.sqrt(2))


FIGURES: dict[str, Callable[[Run], float]] = {
    "sd of the window loss": lambda run: detrended_sd(second_half(run, "loss")),
    "sd, step to step": lambda run: difference_sd(second_half(run, "loss")),
    "gradient norm": lambda run: float(second_half(run, "norm").mean()),
    "its sd": lambda run: float(second_half(run, "norm").std()),
    "cosine": lambda run: float(second_half(run, "cosine").mean()),
    "held-out loss": lambda run: run["validations"][-1]["val/loss"],
    "held-out tau": lambda run: run["validations"][-1]["val/tau"],
    "loss, epoch 1": lambda run: run["validations"][0]["val/loss"],
    "tau, epoch 1": lambda run: run["validations"][0]["val/tau"],
}


def print_report(runs: Sequence[Run]) -> None:
    if not runs:
        print("no results yet")
        return
    epochs = runs[-1]["epochs"]
    runs = [run for run in runs if run["epochs"] == epochs]
    names = list(dict.fromkeys(run["strategy"] for run in runs))
    found = {name: {run["seed"]: run for run in runs if run["strategy"] == name} for name in names}
    print_table(
        f"Training, {epochs} epochs; mean (sd over seeds); spread, norm and cosine over the second half",
        ["strategy", "seeds", "steps", "budget", *FIGURES],
        [[name, *_settings(found[name]), *_cells(found[name])] for name in names],
    )
    print_table(
        f"Difference to {REFERENCE}, seed by seed: mean and 95 % interval; * leaves out zero",
        ["strategy", "pairs", *FIGURES],
        [
            [
                name,
                str(len(set(found[name]) & set(found[REFERENCE]))),
                *_paired(found[name], found[REFERENCE]),
            ]
            for name in names
            if name != REFERENCE and REFERENCE in found
        ],
    )


def _settings(seeds: Mapping[int, Run]) -> list[str]:
    runs = list(seeds.values())
    steps = sorted({run["steps"] for run in runs})
    return [
        str(len(runs)),
        "-".join(map(str, dict.fromkeys((steps[0], steps[-1])))),
        str(runs[0]["max_tokens"]),
    ]


def _cells(seeds: Mapping[int, Run]) -> list[str]:
    cells = []
    for figure in FIGURES.values():
        mean, sd = spread([figure(run) for run in seeds.values()])
        cells.append(f"{mean:.4f} ({sd:.4f})")
    return cells


def _paired(seeds: Mapping[int, Run], reference: Mapping[int, Run]) -> list[str]:
    common = sorted(set(seeds) & set(reference))
    cells = []
    for figure in FIGURES.values():
        mean, sd = spread([figure(seeds[seed]) - figure(reference[seed]) for seed in common])
        half = T_95.get(len(common) - 1, np.nan) * sd / np.sqrt(len(common))
        sure = "*" if abs(mean) > half else " "
        cells.append(f"{mean:+.4f} +- {half:.4f}{sure}")
    return cells
