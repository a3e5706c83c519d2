"""Runs whose cause of movement is known, written as real files.

The bucket shares are those of the documented run under the real order (Credit), the levels of loss .55 /
1.0 / 1.6 by bucket, the noise of a batch .05 (spec/batching.md sections 1 and 2.3).
"""

import csv
import json
from dataclasses import dataclass, replace

import numpy as np

from dflash_lightning.plan import Credit, Shuffle

SHARES = (0.0748, 0.0711, 0.0893, 0.1116, 0.1302, 0.5230)
LEVELS = (0.55, 1.0, 1.0, 1.0, 1.0, 1.6)
EDGES = (1216, 1728, 2240, 2784, 3296, 8192)
ROWS = (63, 28, 22, 17, 14, 6)
NOISE = 0.05
SECONDS_PER_BATCH = 0.8
START = 1_700_000_000.0


@dataclass(frozen=True)
class Training:
    """S optimizer steps of W batches each."""

    bucket: np.ndarray  # [S, W]
    loss: np.ndarray  # [S, W]
    seq_len: np.ndarray  # [S, W]
    time: np.ndarray  # [S, W] unix seconds when the batch was done
    grad_norm: np.ndarray  # [S]
    storage_s: np.ndarray  # [S] seconds that the step waited for storage

    @property
    def steps(self):
        return np.arange(1, len(self.loss) + 1)


def train(seed, *, steps=600, window=4, order=None, levels=LEVELS, noise=NOISE, falls=True):
    rng = np.random.default_rng(seed)
    counts = np.floor(np.array(SHARES) * steps * window).astype(int)
    counts[-1] += steps * window - counts.sum()
    bucket = (order or Credit()).labels(counts.tolist(), key=seed).reshape(steps, window)
    fall = 1 + 2 * np.exp(-np.arange(steps) / (steps / 12))[:, None] if falls else np.ones((steps, 1))
    loss = np.array(levels)[bucket] * fall + rng.normal(0, noise, bucket.shape)
    low, high = np.array((0, *EDGES))[bucket] + 1, np.array(EDGES)[bucket]
    return Training(
        bucket=bucket,
        loss=loss,
        seq_len=rng.integers(low, high, endpoint=True),
        time=START + SECONDS_PER_BATCH * (1 + np.arange(steps * window)).reshape(steps, window),
        grad_norm=0.5 * fall[:, 0] * np.exp(rng.normal(0, 0.15, steps)),
        storage_s=np.zeros(steps),
    )


def smooth(seed, **settings):
    """Every bucket has the same loss: noise on a falling curve."""
    return train(seed, levels=(1.2,) * 6, **settings)


def shuffled(seed, **settings):
    return train(seed, order=Shuffle(), **settings)


def diverging(training, step, by=0.6, norm=6.0):
    """From `step` on the loss is higher by `by`, and the gradient norm `norm` times."""
    later = training.steps >= step
    return replace(
        training,
        loss=training.loss + by * later[:, None],
        grad_norm=training.grad_norm * np.where(later, norm, 1.0),
    )


def spiking(training, steps, by=1.5, norm=10.0):
    """At `steps` alone."""
    there = np.isin(training.steps, steps)
    return replace(
        training,
        loss=training.loss + by * there[:, None],
        grad_norm=training.grad_norm * np.where(there, norm, 1.0),
    )


def stalling(training, every, seconds):
    """Every so many steps storage holds the training up, before the step's batches are done."""
    waits = np.where(training.steps % every == 0, float(seconds), 0.0)
    return replace(training, time=training.time + np.cumsum(waits)[:, None], storage_s=waits)


def laddered(training, period, height=0.4):
    """The loss climbs by `height` over `period` steps and falls back, again and again."""
    return replace(training, loss=training.loss + height * ((training.steps % period) / period)[:, None])


def window_means(training):
    return training.loss.mean(axis=1)


def write_run(folder, training, *, log_every=1, micro=True, per_bucket=True, times=False):
    """A run's folder as training writes it: metrics.csv, and micro_batches.rank0.jsonl."""
    logs = folder / "logs/version_0"
    logs.mkdir(parents=True, exist_ok=True)
    rows = [
        _row(training, end, log_every, per_bucket)
        for end in range(log_every, len(training.loss) + 1, log_every)
    ]
    with (logs / "metrics.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, sorted({name for row in rows for name in row}))
        writer.writeheader()
        writer.writerows(rows)
    if micro:
        write_lines(folder / "micro_batches.rank0.jsonl", micro_lines(training))
    return folder


def _row(training, end, log_every, per_bucket):
    part = slice(end - log_every, end)
    loss, bucket = training.loss[part], training.bucket[part]
    before = training.time[part.start - 1, -1] if part.start else START
    seconds = training.time[end - 1, -1] - before
    row = {
        "step": end - 1,
        "epoch": 0,
        "train/step": float(end),
        "train/loss": loss.mean(),
        "train/grad_norm": np.sqrt((training.grad_norm[part] ** 2).mean()),
        "throughput/step_s": seconds / log_every,
        "time/storage_pct": 100 * training.storage_s[part].sum() / seconds,
    }
    for i in range(len(LEVELS)):
        row[f"batch/bucket_{i}_pct"] = 100 * (training.bucket[max(0, end - 100) : end] == i).mean()
        if per_bucket and (bucket == i).any():
            row[f"loss/bucket_{i}"] = loss[bucket == i].mean()
    return row


def micro_lines(training):
    """One dict a micro-batch, as the MicroBatches callback writes them."""
    return [
        {
            "step": s + 1,
            "micro_step": w,
            "rank": 0,
            "bucket": int(training.bucket[s, w]),
            "samples": ROWS[training.bucket[s, w]],
            "seq_len": int(training.seq_len[s, w]),
            "loss": float(training.loss[s, w]),
            "weight": 1.0,
            "time": float(training.time[s, w]),
            "applied": True,
        }
        for s, w in np.ndindex(training.loss.shape)
    ]


def sampled_lines(training, *, seconds=10.0, batches=2):
    """The first `batches` micro-batches done after each `seconds`: what the misleading chart showed."""
    time = training.time.ravel()
    ticks = np.arange(time[0], time[-1], seconds)
    picked = np.unique(np.searchsorted(time, ticks)[:, None] + np.arange(batches))
    lines = micro_lines(training)
    return [lines[i] for i in picked[picked < len(lines)]]


def write_lines(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def foreign_lines(training, *names):
    """Another trainer's log: one line a step, of its first batch, with the named columns beside the loss."""
    columns = {
        "loss": training.loss[:, 0],
        "seq_len": training.seq_len[:, 0],
        "time": training.time[:, 0],
        "grad_norm": training.grad_norm,
    }
    kept = {name: columns[name].tolist() for name in ("loss", *names)}
    return [
        {"step": step, **{name: values[i] for name, values in kept.items()}}
        for i, step in enumerate(training.steps.tolist())
    ]
