"""Loss and acceptance length over training, as a picture."""

import csv
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt


def read_curve(rows: list[dict[str, str]], x: str, y: str) -> tuple[list[float], list[float]]:
    points = [(float(row[x]), float(row[y])) for row in rows if row.get(x) and row.get(y)]
    return [a for a, _ in points], [b for _, b in points]


def plot_curves(logs: Path, output: Path) -> None:
    """Draw the CSV log of the newest run below `logs`."""
    newest = max(logs.glob("version_*/metrics.csv"), key=lambda path: path.stat().st_mtime)
    rows = list(csv.DictReader(newest.read_text().splitlines()))
    figure, (loss, tau) = plt.subplots(2, 1, figsize=(7, 6), sharex=True, layout="constrained")
    loss.plot(*read_curve(rows, "train/step", "train/loss"), color="black", label="training")
    loss.set_ylabel("loss (nats per token)")
    tau.plot(*read_curve(rows, "train/step", "train/tau"), color="black", label="training blocks")
    for axis, name in ((loss, "val/loss"), (tau, "val/tau")):
        steps, values = read_curve(rows, "step", name)
        axis.plot([s + 1 for s in steps], values, "o--", color="tab:orange", label="validation, all anchors")
        axis.grid(alpha=0.3)
        axis.legend()
    tau.set_ylabel("acceptance length (tokens per target pass)")
    tau.set_xlabel("optimizer step")
    figure.suptitle("DFlash drafter: every point covers all steps since the one before")
    figure.savefig(output, dpi=120)
    plt.close(figure)
