"""`make demo`: a DFlash drafter for a real target on this machine, from chats to drafted text.

Runs the commands a user would run (each is printed), then measures acceptance on prompts of other topics than
the training ones, and writes runs/demo/summary.json, runs/demo/curves.png and the exported drafter.
"""

import json
import os
import shutil
import time
from pathlib import Path

import torch
from curves import plot_curves
from heldout import Heldout, heldout_report

from dflash_lightning.lightning_cli import run_cli
from dflash_lightning.main import main as cli
from dflash_lightning.plan.summary import summarize

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
TARGET = "smollm2-135m-instruct"
STORE, RUN = Path("data/demo"), Path("runs/demo")
SHOWN_PROMPT = "Explain in three sentences why the sea is salty."


def main() -> None:
    started = time.monotonic()
    if "OMP_NUM_THREADS" not in os.environ:  # torch's own choice is one thread per pair of hyper-threads
        torch.set_num_threads(os.cpu_count() or 1)
    shutil.rmtree(RUN, ignore_errors=True)
    chats = str(HERE.relative_to(ROOT) / "chats.jsonl")
    call("prepare", "--input", chats, "--target", TARGET, "--output", str(STORE), "--overwrite")
    fit_started = time.monotonic()
    fit = run_cli(announced("fit", "--config", "configs/demo.yaml"))
    fit_seconds = time.monotonic() - fit_started
    drafter = RUN / "drafter"
    call("export", "--checkpoint", str(RUN / "checkpoints"), "--output", str(drafter))
    heldout = heldout_report(fit.model, drafter, HERE / "heldout.jsonl")
    summary = {
        **figures(heldout),
        "steps": fit.datamodule.position.steps,
        "trained_tokens": fit.model.logged.tokens,
        "tokens_per_s": round(fit.model.logged.tokens / fit_seconds, 1),
        "padding_efficiency": round(padding_efficiency(fit.datamodule), 4),
        "export_dir": str(drafter),
    }
    plot_curves(RUN / "logs", RUN / "curves.png")
    call(
        *("generate", "--target", TARGET, "--drafter", str(drafter), "--dtype", "float32", "--check"),
        *("--max-new-tokens", "80", "--prompt", SHOWN_PROMPT),
    )
    summary["seconds"] = round(time.monotonic() - started, 1)
    (RUN / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    print_table(summary)


def announced(*words: str) -> list[str]:
    print("\n$ python cli.py " + " ".join(f'"{w}"' if " " in w else w for w in words), flush=True)
    return list(words)


def call(*words: str) -> None:
    code = cli(announced(*words))
    if code:
        raise SystemExit(code)


def figures(heldout: Heldout) -> dict[str, object]:
    """Acceptance lengths, pooled over the held-out prompts; target passes behind the prefill only."""
    return {
        "tau_before": round(heldout.before.pooled, 3),
        "tau_after": round(heldout.after.pooled, 3),
        "tau_first32": round(heldout.after.first32, 3),
        "tau_prompt_lookup": round(heldout.lookup.pooled, 3),
        "tau_prompt_lookup_first32": round(heldout.lookup.first32, 3),
        "heldout_prompts": heldout.after.prompts,
    }


def padding_efficiency(data: object) -> float:
    """Real tokens / padded tokens over all trained epochs."""
    epochs = data.epochs  # type: ignore[attr-defined]
    plans = [epochs.plan(epoch) for epoch in range(max(1, data.position.epoch + 1))]  # type: ignore[attr-defined]
    facts = [summarize(plan, epochs.samples) for plan in plans]
    return sum(f.tokens for f in facts) / sum(f.padded_tokens for f in facts)


ROWS = {
    "tau_before": "acceptance length, untrained drafter",
    "tau_after": "acceptance length, trained drafter",
    "tau_first32": "  over the first 32 new tokens",
    "tau_prompt_lookup": "acceptance length of prompt lookup, for comparison",
    "tau_prompt_lookup_first32": "  over the first 32 new tokens",
    "heldout_prompts": "held-out prompts, of other topics",
    "steps": "optimizer steps",
    "trained_tokens": "tokens trained on",
    "tokens_per_s": "tokens per second of fit",
    "padding_efficiency": "padding efficiency",
    "export_dir": "exported drafter",
    "seconds": "seconds in all",
}


def print_table(summary: dict[str, object]) -> None:
    width = max(map(len, ROWS.values()))
    print("\n" + "\n".join(f"{text:<{width}}  {summary[key]}" for key, text in ROWS.items()))
    print(f"\nThe same as {RUN / 'summary.json'}; loss and acceptance over training: {RUN / 'curves.png'}")


if __name__ == "__main__":
    main()
