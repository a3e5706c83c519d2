"""One exported folder, complete: config, weights, model card, and the drafter's own code if asked for.

in    TrainedDrafter, format, target
out   the folder and the command lines that serve it
law   a drafter that a format cannot express is refused before anything is written
"""

from pathlib import Path

import torch

from dflash_lightning.export.card import CARD_NAME, model_card
from dflash_lightning.export.checkpoint import TrainedDrafter
from dflash_lightning.export.files import REMOTE_CODE_NAME
from dflash_lightning.export.formats import Format
from dflash_lightning.export.rounding import precision
from dflash_lightning.export.serve import NO_TARGET, launch_lines, name_for_servers, target_note
from dflash_lightning.export.speculators import export_speculators
from dflash_lightning.export.target import TargetFacts
from dflash_lightning.export.zlab import export_zlab

REMOTE_CODE = Path(__file__).with_name("remote_code.py")
"""Copied, not imported: it is no part of this program."""


def write_drafter(
    trained: TrainedDrafter,
    folder: str | Path,
    *,
    target: TargetFacts | None,
    format: Format = "zlab",
    dtype: torch.dtype | None = torch.bfloat16,
    with_code: bool = False,
    acceptance: str = "",
) -> dict[str, str]:
    """Write the folder; returns the lines of launch_lines. `acceptance`: Markdown of acceptance_section.

    Raises:
        ValueError: a target other than that of training; speculators' format without a target that servers
            can open, or with remote code; and as the exporters do.
        OSError: as write_folder.
    """
    if target is not None:
        _require_target_of_training(trained, target)
    if format == "speculators" and target is None:
        raise ValueError("speculators' format names the target, and the source does not: add --target NAME")
    if format == "speculators" and target is not None and name_for_servers(target) == NO_TARGET:
        raise ValueError(
            f"speculators' format names the target that servers start, and they cannot open {target.name}: "
            "add --target with its folder or hub name"
        )
    if format == "speculators" and with_code:
        raise ValueError(
            "--remote-code belongs to z-lab's format: the speculators package brings its own code"
        )
    lines = launch_lines(trained.config, folder, target, format=format, remote_code=with_code)
    card = model_card(
        trained.config,
        folder=folder,
        dtype=precision(trained.state, dtype),
        target=target,
        run=trained.run,
        lines=lines,
        note=target_note(target),
        remote_code=with_code,
        acceptance=acceptance,
    )
    extras = {CARD_NAME: card}
    if with_code:
        extras[REMOTE_CODE_NAME] = REMOTE_CODE.read_text(encoding="utf-8")
    if format == "speculators" and target is not None:
        export_speculators(trained.config, trained.state, folder, target=target, dtype=dtype, extras=extras)
    else:
        export_zlab(trained.config, trained.state, folder, dtype=dtype, extras=extras)
    return lines


def _require_target_of_training(trained: TrainedDrafter, target: TargetFacts) -> None:
    """The digest tells any two targets apart; where it is not known, the config those of another shape."""
    config = trained.config
    shapes = {
        "layers": (config.num_target_layers, target.depth),
        "hidden size": (config.hidden_size, target.hidden_size),
        "vocabulary": (config.vocab_size, target.vocab_size),
    }
    other = [
        f"{name} {ours} against {theirs}"
        for name, (ours, theirs) in shapes.items()
        if theirs is not None and ours != theirs
    ]
    if other:
        raise ValueError(
            f"the drafter was made for another target than {target.name}: {', '.join(other)} there. Give the "
            "target of training with --target"
        )
    in_training = trained.run.target_digest if trained.run else None
    if in_training and target.digest and in_training != target.digest:
        raise ValueError(
            f"the drafter was trained with target {trained.target} of digest {in_training}, but "
            f"{target.name} has {target.digest}: other weights or another config, for which it would draft "
            "badly. Give the target of training with --target"
        )
