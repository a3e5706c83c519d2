"""Runs whose cause of movement is known, written as real files.

The bucket shares are those of the documented run under the real order (Credit), the levels of loss .55 /
1.0 / 1.6 by bucket, the noise of a batch .05 (spec/batching.md sections 1 and 2.3).
"""

import csv
import json
from dataclasses import dataclass, replace

import numpy as np

from dflash_lightning.plan import Credit, Shuffle
from dflash_lightning.report.aliases import with_our_names
from dflash_lightning.report.detect.sampling import sampled
from dflash_lightning.report.run import MicroLog, Run
from dflash_lightning.report.sources.micro_log import singles
from dflash_lightning.report.table import tabulate

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


def columns(training, *, log_every=1, per_bucket=True):
    """Columns of metrics.csv: name -> [n], NaN where a bucket was absent since the last log."""
    rows = len(training.loss) // log_every
    loss, bucket = (part[: rows * log_every].reshape(rows, -1) for part in (training.loss, training.bucket))
    ends = log_every * np.arange(1, rows + 1)
    seconds = np.diff(training.time[ends - 1, -1], prepend=START)
    waited = training.storage_s[: ends[-1]].reshape(rows, -1).sum(axis=1)
    made = {
        "step": ends - 1.0,
        "train/step": ends.astype(float),
        "train/loss": loss.mean(axis=1),
        "train/grad_norm": np.sqrt((training.grad_norm[: ends[-1]].reshape(rows, -1) ** 2).mean(axis=1)),
        "throughput/step_s": seconds / log_every,
        "time/storage_pct": 100 * waited / seconds,
    }
    for i in range(len(LEVELS)):
        mine = bucket == i
        so_far = np.concatenate(([0.0], np.cumsum((training.bucket == i).mean(axis=1))))
        first = np.maximum(0, ends - 100)
        made[f"batch/bucket_{i}_pct"] = 100 * (so_far[ends] - so_far[first]) / (ends - first)
        if per_bucket:
            count = mine.sum(axis=1)
            made[f"loss/bucket_{i}"] = np.where(
                count, (loss * mine).sum(axis=1) / np.maximum(1, count), np.nan
            )
    return made


def metrics(training, **settings):
    """Rows of metrics.csv: one dict a logged step; empty cells are absent."""
    made = columns(training, **settings)
    rows = zip(*made.values(), strict=True)
    return [{name: float(v) for name, v in zip(made, row, strict=True) if np.isfinite(v)} for row in rows]


def write_run(folder, training, *, micro=True, **settings):
    """A run's folder as training writes it: metrics.csv, and micro_batches.rank0.jsonl."""
    write_csv(folder / "logs/version_0/metrics.csv", metrics(training, **settings))
    if micro:
        write_lines(folder / "micro_batches.rank0.jsonl", micro_lines(training))
    return folder


def write_csv(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, sorted({name for row in rows for name in row}))
        writer.writeheader()
        writer.writerows(rows)
    return path


def as_run(training, *, micro=True, **settings):
    """The same Run without files, for tests over many seeds."""
    made = columns(training, **settings)
    steps = made.pop("train/step")
    del made["step"]
    return Run(
        name="synthetic",
        path="synthetic",
        steps=steps,
        values=made,
        times=np.full(len(steps), np.nan),
        val_steps=np.empty(0),
        validation={},
        micro=micro_log(training) if micro else None,
    )


def micro_log(training):
    """All micro-batches of a training."""
    window = training.loss.shape[1]
    return MicroLog(
        step=np.repeat(training.steps, window),
        loss=training.loss.ravel(),
        bucket=training.bucket.ravel(),
        seq_len=training.seq_len.ravel().astype(float),
        weight=np.ones(training.loss.size),
        rank=np.zeros(training.loss.size, np.int64),
        time=training.time.ravel(),
    )


def run_of(rows):
    """A Run of rows that have our names."""
    rows = [{name: float(value) for name, value in row.items()} for row in rows]
    table, _ = tabulate(rows)
    return Run(
        name="synthetic",
        path="synthetic",
        steps=table.steps,
        values=table.values,
        times=table.times,
        val_steps=np.empty(0),
        validation={},
        micro=singles(rows),
        non_finite=table.non_finite,
    )


def foreign_run(lines):
    """The Run of another trainer's lines."""
    return run_of([with_our_names({name: float(value) for name, value in line.items()}) for line in lines])


def micro_lines(training, places=None):
    """One dict a micro-batch, as the MicroBatches callback writes them; `places` picks some of S * W."""
    places = range(training.loss.size) if places is None else places
    window = training.loss.shape[1]
    return [
        {
            "step": int(place) // window + 1,
            "micro_step": int(place) % window,
            "rank": 0,
            "bucket": int(training.bucket.flat[place]),
            "samples": ROWS[training.bucket.flat[place]],
            "seq_len": int(training.seq_len.flat[place]),
            "loss": float(training.loss.flat[place]),
            "weight": 1.0,
            "time": float(training.time.flat[place]),
            "applied": True,
        }
        for place in places
    ]


def sampled_lines(training, **settings):
    """Two batches every ten seconds: what the misleading chart showed."""
    return micro_lines(training, sampled(training.time.ravel(), **settings))


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
