"""`python cli.py export`: checkpoint -> z-lab folder. Parses, calls export/, prints."""

import sys
from collections.abc import Sequence
from pathlib import Path

from jsonargparse import ArgumentParser, Namespace

from dflash_lightning.commands.store_options import add_store_options, store_settings
from dflash_lightning.commands.teaching_help import TeachingHelp

DESCRIPTION = """\
Write the drafter of a training checkpoint as a folder that servers and other programs load: config.json and
model.safetensors with the names of z-lab's format. Embedding and head are the target's and stay with it.

Examples:
  python cli.py export --checkpoint runs/mine/checkpoints --output drafters/mine         the newest
  python cli.py export --checkpoint s3://bucket/runs/a/best --output drafters/mine       .../step=500

Then see it draft:
  python cli.py generate --target my-model --drafter drafters/mine --prompt "Why is the sky blue?"
"""


def main(args: Sequence[str] | None = None) -> int:
    """Exit code: 0, or 1 with one message on standard error."""
    options = make_parser().parse_args(args)
    try:
        _export(options)
    except (ValueError, OSError) as error:
        print(f"export: {error}", file=sys.stderr)
        return 1
    return 0


def make_parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="python cli.py export", description=DESCRIPTION, formatter_class=TeachingHelp
    )
    add = parser.add_argument
    add(
        "--checkpoint",
        required=True,
        metavar="FILE",
        help="a .ckpt file that `fit` wrote, or an address: s3://bucket/prefix or a folder, .../best, "
        ".../step=8",
    )
    add("--output", required=True, metavar="DIR", help="folder to write; made if missing")
    add(
        "--dtype",
        choices=["bfloat16", "float16", "float32"],
        default="bfloat16",
        help="precision of the weights",
    )
    add("--overwrite", action="store_true", help="replace the drafter that is already in --output")
    add_store_options(parser)
    return parser


def _export(options: Namespace) -> None:
    import torch

    from dflash_lightning.checkpoint.address import local_copy
    from dflash_lightning.export.checkpoint import read_checkpoint
    from dflash_lightning.export.zlab import CONFIG_NAME, WEIGHTS_NAME, export_zlab

    folder = Path(options.output)
    if (folder / CONFIG_NAME).exists() and not options.overwrite:
        raise ValueError(
            f"{folder} already holds a model; give another --output, or --overwrite to replace it"
        )
    with local_copy(options.checkpoint, store_settings(options)) as checkpoint:
        trained = read_checkpoint(checkpoint)
    export_zlab(trained.config, trained.state, folder, dtype=getattr(torch, options.dtype))
    parameters = sum(tensor.numel() for tensor in trained.state.values())
    size = (folder / WEIGHTS_NAME).stat().st_size
    print(
        f"{folder}: a drafter of {parameters:,} parameters in {options.dtype}, {size / 1e6:,.1f} MB, "
        f"block size {trained.config.block_size}, mask token {trained.config.mask_token_id}, "
        f"taps {', '.join(map(str, trained.config.target_layer_ids))}\n"
        f"see it draft:\n"
        f'  python cli.py generate --target {trained.target} --drafter {folder} --prompt "..."'
    )
