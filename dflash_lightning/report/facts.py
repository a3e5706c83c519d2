"""A run in figures and settings: what stands beside its curves.

in    Run, and the config.yaml that fit wrote beside its logs
out   key_figures, settings_of: label -> text; headline
law   settings are taken from a fixed list and without logins and secrets, so that none reaches a report
"""

from pathlib import Path
from typing import Any

import numpy as np

from dflash_lightning.redact import redact
from dflash_lightning.report.config import find_config, load_config
from dflash_lightning.report.figures.machine import pace_of
from dflash_lightning.report.figures.progress import skipped_steps
from dflash_lightning.report.figures.reading import series, val_series
from dflash_lightning.report.run import FloatArray, Run
from dflash_lightning.report.verdict import Verdict

SETTINGS = (
    ("target", "model.target"),
    ("block size", "model.block_size"),
    ("anchors per row", "model.num_anchors"),
    ("objective", "model.objective"),
    ("peak learning rate", "model.lr"),
    ("precision", "trainer.precision"),
    ("accumulation", "trainer.accumulate_grad_batches"),
    ("devices", "trainer.devices"),
    ("nodes", "trainer.num_nodes"),
    ("clipping", "trainer.gradient_clip_val"),
    ("order", "data.plan.order"),
    ("packing", "data.plan.packing"),
    ("bucket edges", "data.plan.edges"),
    ("padded tokens per batch", "data.plan.max_tokens"),
    ("token store", "data.store"),
)
END_SHARE = 0.05
"""The loss "at the end" is the median over this share of the run's rows, at least five."""


def key_figures(run: Run) -> dict[str, str]:
    """The figures to compare runs by; those that were not logged are absent."""
    tokens, tau = series(run, "train/tokens")[1], val_series(run, "val/tau")[1]
    held_out, speed = val_series(run, "val/loss")[1], series(run, "throughput/tokens_per_s")[1]
    norm, clipped = series(run, "train/grad_norm")[1], series(run, "train/clipped_pct")[1]
    pace, blocked = pace_of(run)[1], series(run, "checkpoint/blocked_s")[1]
    facts = {
        "steps": f"{run.steps[-1]:,.0f}" if len(run.steps) else "",
        "tokens": short(tokens[-1]) if len(tokens) else "",
        "time": duration(run.times),
        "loss at the end": _at_end(series(run, "train/loss")[1]),
        "validation loss, best": f"{held_out.min():.4g}" if len(held_out) else "",
        "validation tau, best": f"{tau.max():.3f}" if len(tau) else "",
        "tokens per second": short(float(np.median(speed))) if len(speed) else "",
        "seconds per step": f"{np.median(pace):.3g}" if len(pace) else "",
        "gradient norm, median": f"{np.median(norm):.3g}" if len(norm) else "",
        "clipped steps": f"{clipped.mean():.1f} %" if len(clipped) else "",
        "skipped steps": str(len(skipped_steps(run))) if len(norm) or run.skipped else "",
        "blocked by checkpoints": f"{blocked.sum():.3g} s" if len(blocked) else "",
    }
    return {label: text for label, text in facts.items() if text}


def settings_of(run: Run) -> dict[str, str]:
    """Settings from the run's config.yaml that say what was trained, and how; empty without that file."""
    found = None if run.log is None else find_config(run.log, Path(run.path))
    if found is None:
        return {}
    config = load_config(found)
    if config is None:
        return {"settings": f"{found.name} cannot be read"}
    shown = redact(config, {})  # the config of another trainer may hold what ours would not
    values = {label: _look_up(shown, path) for label, path in SETTINGS}
    return {label: _as_text(value) for label, value in values.items() if value not in (None, "")}


def headline(verdict: Verdict) -> str:
    """The headline where the kind stands beside it already: without it, as a sentence."""
    text = verdict.headline.removeprefix(f"{verdict.kind}: ")
    return text[:1].upper() + text[1:]


def short(number: float) -> str:
    """12,345,678 -> 12.3 M."""
    for size, letter in ((1e12, " T"), (1e9, " B"), (1e6, " M"), (1e3, " k")):
        if abs(number) >= size:
            return f"{number / size:.3g}{letter}"
    return f"{number:.3g}"


def duration(times: FloatArray) -> str:
    """From the first row to the last; empty without times."""
    there = times[np.isfinite(times)]
    if len(there) < 2:
        return ""
    minutes, seconds = divmod(round(there.max() - there.min()), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {seconds:02d} s"


def _at_end(loss: FloatArray) -> str:
    if not len(loss):
        return ""
    return f"{np.median(loss[-max(5, int(END_SHARE * len(loss))) :]):.4g}"


def _look_up(config: Any, path: str) -> Any:
    for key in path.split("."):
        config = config.get(key) if isinstance(config, dict) else None
    return config


def _as_text(value: Any) -> str:
    if isinstance(value, dict) and isinstance(value.get("class_path"), str):
        arguments = value.get("init_args") or {}
        inside = ", ".join(f"{key}={_as_text(item)}" for key, item in arguments.items())
        name = str(value["class_path"]).rpartition(".")[2]
        return name + (f"({inside})" if inside else "")
    if isinstance(value, list):
        return ", ".join(_as_text(item) for item in value)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)
