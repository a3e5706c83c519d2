"""Runs to draw: one with every value there is, one with the loss alone. Written as fit writes them."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np

CONFIG = """\
trainer: {devices: 2, num_nodes: 1, accumulate_grad_batches: 4, precision: bf16-mixed, gradient_clip_val: 1.0}
model:
  target: some/target-8b
  block_size: 16
  num_anchors: 512
  lr: 0.0006
  objective: {class_path: dflash_lightning.objective.CrossEntropy, init_args: {gamma: 7.0}}
data:
  store: data/chats
  plan:
    edges: [512, 1024, 2048, 4096]
    max_tokens: 16384
    order: {class_path: dflash_lightning.plan.Credit, init_args: {}}
    packing: {class_path: dflash_lightning.plan.PoolSorted, init_args: {pool_batches: 64}}
  api_key: do-not-show-me
"""


def write_full_run(folder: Path, *, num_rows: int = 400, every: int = 10, seed: int = 0) -> Path:
    """Four buckets, a spike of the gradient at 60 %, checkpoints every fifth row, validation every 50th."""
    rng = np.random.default_rng(seed)
    rows = [_train_row(rng, i, num_rows, every) for i in range(num_rows)]
    rows += [_val_row(i, num_rows, every) for i in range(49, num_rows, 50)]
    _write_csv(folder / "logs" / "version_0" / "metrics.csv", rows)
    (folder / "config.yaml").write_text(CONFIG)
    last = num_rows * every
    skipped = [{"step": int(last * share), "epoch": 0, "micro_batches": []} for share in (0.6, 0.62)]
    _write_jsonl(folder / "skipped_steps.jsonl", skipped)
    for rank in (0, 1):
        _write_jsonl(folder / f"micro_batches.rank{rank}.jsonl", _micro_batches(rng, rank, last))
    return folder


def write_small_run(folder: Path, *, num_rows: int = 12) -> Path:
    """The loss alone, as of another trainer's CSV."""
    rows = [{"train/step": i + 1, "step": i, "train/loss": 4.0 / (1 + i)} for i in range(num_rows)]
    _write_csv(folder / "logs" / "version_0" / "metrics.csv", rows)
    return folder


def _train_row(rng: np.random.Generator, index: int, num_rows: int, every: int) -> dict[str, float]:
    share, noise = index / num_rows, rng.normal(size=12)
    loss = 1.7 + 5.5 * np.exp(-6 * share) + 0.06 * noise[0]
    spike = 9.0 if abs(index - int(0.6 * num_rows)) < 2 else 0.0
    warm = min(1.0, 20 * share)
    stalls = 1.8 if index % 5 == 4 else 0.0
    row = {
        "epoch": index // (num_rows // 2),
        "step": (index + 1) * every - 1,
        "train/step": (index + 1) * every,
        "time": 1.79e9 + 13.0 * index,
        "train/loss": loss + 0.25 * spike,
        "train/accuracy": 0.62 * (1 - np.exp(-5 * share)),
        "train/tau": 1 + 3.4 * (1 - np.exp(-5 * share)) + 0.08 * noise[1],
        "train/tokens": 120_000.0 * (index + 1) * every,
        "train/lr": 6e-4 * warm * 0.5 * (1 + np.cos(np.pi * share)),
        "train/grad_norm": (0.8 + 2.5 * np.exp(-12 * share)) * np.exp(0.18 * noise[2]) + 6 * spike,
        "train/grad_norm_running": 0.9 + 2.4 * np.exp(-10 * share),
        "grad_norm/fc": 0.3 + 0.5 * np.exp(-12 * share) + 0.03 * noise[10],
        "grad_norm/layer_0": (0.6 + 2.2 * np.exp(-12 * share)) * np.exp(0.15 * noise[11]) + 5 * spike,
        "train/clipped_pct": float(
            np.clip(100 * np.exp(-5 * share) + 8 * noise[3] + 40 * (spike > 0), 0, 100)
        ),
        "batch/mix_distance": abs(0.09 + 0.02 * noise[4]),
        "loss/spread": 1.4,
        "direction/cosine": 0.22 * np.exp(-3 * share) + 0.03 * noise[5],
        "direction/cosine_min": 0.22 * np.exp(-3 * share) - 0.12 + 0.05 * noise[6],
        "direction/noise_scale": 400 + 4000 * share + 200 * noise[7],
        "guard/skipped_steps": 2.0 * (share > 0.62),
        "throughput/tokens_per_s": 61_000 + 900 * noise[8] - 9_000 * (stalls > 0),
        "throughput/padded_tokens_per_s": 64_500 + 900 * noise[8] - 9_000 * (stalls > 0),
        "throughput/step_s": 1.3 + 0.03 * noise[9] + 0.1 * stalls,
        "time/data_pct": 2.0,
        "time/target_pct": 41.0 - 5 * (stalls > 0),
        "time/drafter_pct": 47.0 - 5 * (stalls > 0),
        "time/optimizer_pct": 6.0,
        "time/storage_pct": 10.0 * (stalls > 0),
        "time/other_pct": 4.0,
        "memory/host_gib": 21.0 + share,
        "memory/device_gib": 66.0,
    }
    if stalls:
        row |= {"checkpoint/blocked_s": stalls, "checkpoint/durable_after_s": 6.0 + noise[10]}
    for bucket, part in enumerate((38, 31, 20, 11)):
        row[f"batch/bucket_{bucket}_pct"] = part + (1.2 if bucket % 2 else -1.2) * np.sin(9 * share)
        row[f"loss/bucket_{bucket}"] = loss - 0.7 + 0.45 * bucket + 0.05 * rng.normal() + 0.25 * spike
        row[f"acceptance/bucket_{bucket}"] = row["train/tau"] + 0.3 - 0.2 * bucket
    return row


def _val_row(index: int, num_rows: int, every: int) -> dict[str, float]:
    share = index / num_rows
    tau = 1 + 3.1 * (1 - np.exp(-5 * share))
    row = {"epoch": 0, "step": (index + 1) * every - 1, "val/loss": 1.8 + 5.5 * np.exp(-6 * share)}
    row |= {"val/tau": tau, "val/streak": tau - 1, "val/accuracy": 0.5}
    slots = {f"val/accuracy_slot_{k}": 0.72 * (0.6 + 0.4 * share) * 0.9**k for k in range(1, 16)}
    return row | slots


def _micro_batches(rng: np.random.Generator, rank: int, last: int) -> list[dict[str, float]]:
    lines = []
    for step in range(1, last + 1, 4):
        for micro_step in range(4):
            bucket = int(rng.choice(4, p=(0.38, 0.31, 0.2, 0.11)))
            loss = 1.0 + 5.5 * np.exp(-6 * step / last) + 0.45 * bucket + 0.12 * rng.normal()
            lines.append(
                {
                    "step": step,
                    "micro_step": micro_step,
                    "rank": rank,
                    "bucket": bucket,
                    "seq_len": 512 * 2**bucket,
                    "loss": loss,
                    "weight": 1000.0,
                    "time": 1.79e9 + 1.3 * step,
                }
            )
    return lines


def _write_csv(path: Path, rows: list[dict[str, float]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    names = sorted({name for row in rows for name in row})
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(sorted(rows, key=lambda row: row["step"]))


def _write_jsonl(path: Path, records: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
