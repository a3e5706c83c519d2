"""README.md of an exported folder: what the drafter is, what it was trained on, how to serve it.

in    config, target, facts of the run
out   Markdown with the front matter that model hubs read
law   every line is a fact from config, checkpoint or target; what is not known has no line
"""

import json
from collections.abc import Iterable, Mapping
from math import isfinite
from pathlib import Path
from typing import Any

from dflash_lightning.drafter.config import DrafterConfig
from dflash_lightning.export.facts import RunFacts
from dflash_lightning.export.names import expected_shapes
from dflash_lightning.export.target import TargetFacts

CARD_NAME = "README.md"
TEACHER_FORCED = (
    "Teacher-forced, over the anchors of the validation split; tau counts the bonus token (tree_tau: of "
    "trees)."
)
DECODED = {
    "decode": "Draft and verify on held-out prompts, greedily: tokens committed per pass of the target.",
    "lookup": "Prompt lookup, without the drafter, on the same answers: what copying alone would give.",
}
"""First word of a figure's name -> how it was measured."""
IN_PYTHON = """\
## In transformers

```python
from transformers import AutoModel

drafter = AutoModel.from_pretrained({folder}, trust_remote_code=True)
```

`dflash.py` beside the weights needs torch and transformers (4.57 or 5) only. Logits are the target's
`lm_head` of what `forward` returns.
"""


def model_card(
    config: DrafterConfig,
    *,
    folder: str | Path,
    dtype: str,
    target: TargetFacts | None,
    run: RunFacts | None,
    lines: Mapping[str, str],
    note: str | None = None,
    remote_code: bool,
    acceptance: str = "",
) -> str:
    """`folder`: as the lines name it; `lines`: of launch_lines; `note`: of target_note; `acceptance`: of
    acceptance_section."""
    parts = [
        _front_matter(target),
        f"# {Path(folder).resolve().name}\n\n{_introduction(config, target)}\n",
        f"## Drafter\n\n{_table(_drafter_facts(config, dtype, target, run))}\n",
    ]
    if run is not None:
        parts.append(f"## Training\n\n{_table(_run_facts(run))}\n")
    if run is not None and any(isfinite(value) for value in run.metrics.values()):
        parts.append(f"## Held-out figures of these weights\n\n{_held_out(run.metrics)}\n")
    if acceptance:
        parts.append(f"## Acceptance\n\n{acceptance}\n")
    blocks = [f"# {note}"] if note else []
    shell = "\n\n".join((*blocks, *(f"# {program}\n{line}" for program, line in lines.items())))
    parts.append(f"## Serving\n\n```bash\n{shell}\n```\n")
    if remote_code:
        parts.append(IN_PYTHON.format(folder=json.dumps(str(folder), ensure_ascii=False)))
    return "\n".join(parts)


def _front_matter(target: TargetFacts | None) -> str:
    base = [f"base_model: {target.name}"] if target and target.on_hub else []
    lines = ["library_name: transformers", *base, "tags: [dflash, speculative-decoding]"]
    return "\n".join(("---", *lines, "---", ""))


def _introduction(config: DrafterConfig, target: TargetFacts | None) -> str:
    drafts = f" for `{target.name}`" if target else ""
    return (
        f"A DFlash drafter{drafts}: in one pass it proposes the {config.block_size - 1} tokens after a known "
        "one. It borrows the target's embedding and head and works with that target only."
    )


def _drafter_facts(
    config: DrafterConfig, dtype: str, target: TargetFacts | None, run: RunFacts | None
) -> Iterable[tuple[str, Any]]:
    numbers = sum(_size(shape) for shape in expected_shapes(config).values())
    yield "parameters", f"{numbers:,} in {dtype}"
    yield "layers", config.num_layers
    yield "hidden size", config.hidden_size
    yield "block size, anchor included", config.block_size
    yield "mask token", config.mask_token_id
    yield "tapped target layers", ", ".join(map(str, config.target_layer_ids))
    yield "rope base", config.rope_theta
    if "sliding_attention" in config.layer_types:
        yield "sliding window", config.sliding_window
    if config.causal_in_block:
        causal = "sliding layers" if config.causal_in_block == "sliding" else "all layers"
        yield "causal within a block", causal
    if target is not None:
        yield "target", f"`{target.name}`"
        in_training = run.target_digest if run else None
        yield "digest of the target, in training", in_training
        yield "digest of the target, at export", None if in_training else target.digest


def _run_facts(run: RunFacts) -> Iterable[tuple[str, Any]]:
    yield "optimizer steps", run.steps
    yield "whole epochs", run.epochs
    yield "tokens trained on", run.tokens
    yield "conversations", run.samples
    yield "digest of the token store", run.store
    in_epoch = "" if run.plan_epoch is None else f", epoch {run.plan_epoch}"
    yield f"digest of the plan{in_epoch}", run.plan
    yield "digest of the settings", run.digest
    for key, value in run.settings.items():
        yield f"`{key}`", None if value is None else f"`{value}`"


def _held_out(metrics: Mapping[str, float]) -> str:
    """Each figure under what it is: the kinds are measured in different ways."""
    kinds: dict[str, dict[str, float]] = {}
    for name, value in sorted((name, value) for name, value in metrics.items() if isfinite(value)):
        kind = name.removeprefix("val/").split("_")[0]
        kinds.setdefault(kind if kind in DECODED else "", {})[name] = value
    return "\n\n".join(
        f"{DECODED.get(kind, TEACHER_FORCED)}\n\n{_table((k, f'{v:.4g}') for k, v in found.items())}"
        for kind, found in sorted(kinds.items())
    )


def _table(rows: Iterable[tuple[str, Any]]) -> str:
    lines = [f"| {key} | {_shown(value)} |" for key, value in rows if value is not None]
    return "\n".join(("| | |", "|---|---|", *lines))


def _shown(value: Any) -> str:
    text = f"{value:,}" if isinstance(value, int) and value >= 1_000_000 else str(value)
    return text.replace("|", "\\|").replace("\n", " ")


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for length in shape:
        size *= length
    return size
