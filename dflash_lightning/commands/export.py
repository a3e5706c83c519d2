"""`python cli.py export`: checkpoint or exported folder -> exported folder. Parses, calls export/, prints."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jsonargparse import ArgumentParser, Namespace

from dflash_lightning.commands.store_options import add_store_options, store_settings
from dflash_lightning.commands.teaching_help import TeachingHelp
from dflash_lightning.commands.writable import require_folder
from dflash_lightning.short_errors import ShortErrors

if TYPE_CHECKING:  # torch takes seconds to import, which `--help` should not cost
    from dflash_lightning.export.checkpoint import TrainedDrafter

DESCRIPTION = """\
Write the drafter of a training checkpoint as a folder that servers and other programs load: config.json,
model.safetensors and a model card (README.md). Embedding and head are the target's and stay with it.
Given a folder instead of a checkpoint, ours or a published one, it is written anew: in another format or
precision, or with code beside it.

Examples:
  python cli.py export --checkpoint runs/mine/checkpoints --output drafters/mine         the newest
  python cli.py export --checkpoint s3://bucket/runs/a/best --output drafters/mine       .../step=500
  python cli.py export ... --remote-code --check     loads in plain transformers; reload and compare
  python cli.py export --checkpoint drafters/mine --format speculators --output drafters/mine-vllm

Then see it draft:
  python cli.py generate --target my-model --drafter drafters/mine --prompt "Why is the sky blue?"
"""


def main(args: Sequence[str] | None = None) -> int:
    """Exit code: 0; 1 with one message on standard error, or when --check finds another drafter."""
    options = make_parser().parse_args(args)
    try:
        return _export(options)
    except (ValueError, OSError) as error:
        print(f"export: {error}", file=sys.stderr)
        return 1


def make_parser() -> ArgumentParser:
    parser = ShortErrors(prog="python cli.py export", description=DESCRIPTION, formatter_class=TeachingHelp)
    add = parser.add_argument
    add(
        "--checkpoint",
        required=True,
        metavar="FILE",
        help="a .ckpt file of `fit`, an address (s3://bucket/prefix or a folder, .../best, .../step=8) "
        "or the folder of an exported drafter",
    )
    add("--output", required=True, metavar="DIR", help="folder to write; made if missing")
    add(
        "--format",
        choices=["zlab", "speculators"],
        default="zlab",
        help="zlab: vLLM, SGLang, transformers; speculators: vLLM, and training with that package",
    )
    add(
        "--dtype",
        choices=["bfloat16", "float16", "float32"],
        help="precision of the weights; by default bfloat16, and as they are in a folder",
    )
    add(
        "--target",
        metavar="NAME",
        help="name or folder of the target as servers will know it; by default as the run named it",
    )
    add(
        "--evaluation",
        metavar="FILE",
        help="JSON of `evaluate` of this very drafter: its acceptance lengths go on the model card",
    )
    add("--remote-code", action="store_true", help="add dflash.py, for AutoModel with trust_remote_code")
    add(
        "--check",
        action="store_true",
        help="compare config.json, and hidden states of a fresh process that reloads the folder; exit code 1 "
        "if they differ. If --output holds a drafter already, without --overwrite, that one is checked and "
        "nothing written",
    )
    add(
        "--overwrite",
        action="store_true",
        help="replace the drafter that is already in --output; another model never is",
    )
    add_store_options(parser)
    return parser


def _export(options: Namespace) -> int:
    from dflash_lightning.export.replaceable import holds_drafter

    folder = Path(options.output)
    keep = holds_drafter(folder) and not options.overwrite
    if keep and not options.check:
        raise ValueError(
            f"{folder} already holds a drafter; give another --output, or --overwrite to replace it, --check "
            "to see whether it is this one"
        )
    if not keep:
        require_folder(f"--output {folder}", folder)
    trained = _read(options)
    if not keep:
        _write(trained, folder, options)
    return _check(trained, folder, options.checkpoint) if options.check else 0


def _read(options: Namespace) -> "TrainedDrafter":
    from dflash_lightning.checkpoint.resuming.address import local_checkpoint
    from dflash_lightning.export.checkpoint import TrainedDrafter, read_checkpoint
    from dflash_lightning.export.files import is_exported
    from dflash_lightning.export.formats import load_folder
    from dflash_lightning.export.target import target_facts

    if is_exported(options.checkpoint):
        depth = target_facts(options.target).depth if options.target else None
        found = load_folder(options.checkpoint, depth=depth)
        return TrainedDrafter(found.config, found.state, options.target or found.target)
    with local_checkpoint(options.checkpoint, store_settings(options)) as fetched:
        metrics = fetched.manifest.metrics if fetched.manifest else None
        return read_checkpoint(fetched.path, metrics=metrics)


def _write(trained: "TrainedDrafter", folder: Path, options: Namespace) -> None:
    import torch

    from dflash_lightning.export.evaluated import acceptance_section
    from dflash_lightning.export.files import WEIGHTS_NAME
    from dflash_lightning.export.rounding import precision
    from dflash_lightning.export.serve import generate_line, target_note, unchecked_note
    from dflash_lightning.export.target import target_facts
    from dflash_lightning.export.write import write_drafter

    name = options.target or trained.target
    as_stored = None if trained.run is None else torch.bfloat16
    dtype = getattr(torch, options.dtype) if options.dtype else as_stored
    target = target_facts(name, for_servers=options.target is not None) if name else None
    acceptance = ""
    if options.evaluation:
        acceptance = acceptance_section(options.evaluation, trained, target=target, dtype=dtype)
    lines = write_drafter(
        trained,
        folder,
        target=target,
        format=options.format,
        dtype=dtype,
        with_code=options.remote_code,
        acceptance=acceptance,
    )
    parameters = sum(tensor.numel() for tensor in trained.state.values())
    size = (folder / WEIGHTS_NAME).stat().st_size
    print(
        f"{folder}: a drafter of {parameters:,} parameters in "
        f"{precision(trained.state, dtype)}, {size / 1e6:,.1f} MB, "
        f"block size {trained.config.block_size}, mask token {trained.config.mask_token_id}, "
        f"taps {', '.join(map(str, trained.config.target_layer_ids))}"
    )
    note = target_note(target) or (unchecked_note(target) if options.target else None)
    if note:
        print(f"in the servers' lines, {note}")
    for program, line in {"see it draft": generate_line(folder, name), **lines}.items():
        print(f"{program}:\n  {line}")


def _check(trained: "TrainedDrafter", folder: Path, source: str) -> int:
    from dflash_lightning.export.check import check_folder, config_differences, stored_precision

    stated = config_differences(trained.config, folder)
    verdict = f"ANOTHER DRAFTER ({'; '.join(stated)})" if stated else "same"
    print(f"check: {folder}/config.json against that of the source: {verdict}", flush=True)
    stored = stored_precision(trained.state, folder)
    differences = check_folder(trained.config, trained.state, folder)
    for found in differences:
        verdict = "same" if found.is_same else "ANOTHER DRAFTER"
        print(
            f"check: {folder} read by {found.reader} in a fresh process: {verdict} (hidden states differ by "
            f"{found.largest:.2g} of {found.scale:.3g} at most from the source rounded to {stored})"
        )
    if not stated and all(found.is_same for found in differences):
        return 0
    print(
        f"export: {folder} does not hold the drafter of {source}; write it again with --overwrite, or give "
        "the checkpoint it was written from",
        file=sys.stderr,
    )
    return 1
