"""What `evaluate` refuses before the work: options that mean nothing together, files that cannot be written.

in    the options, and what they are when nobody gives them
out   nothing
law   no option is ignored in silence, and nothing that was measured is lost to a mistake that could be seen
"""

import os
from pathlib import Path

from jsonargparse import Namespace

from dflash_lightning.commands.chat_options import require_no_template
from dflash_lightning.commands.decoding_options import refuse_given, require_decoding
from dflash_lightning.commands.sampling_options import require_sampling

PICTURES = (".png", ".pdf", ".svg")
LOCAL = ("target", "drafter", "tree", "batch_size", "block_size", "dtype", "device", "plot")
SERVED = ("model", "concurrency", "timeout")


def require_sense(options: Namespace, defaults: Namespace) -> None:
    """Raises ValueError, OSError."""
    if options.server:
        refuse_given(options, defaults, LOCAL, "for decoding here, not for --server")
        require_no_template(options)
    else:
        refuse_given(options, defaults, SERVED, "for asking a --server, and none is named")
        if options.target is None or options.drafter is None:
            raise ValueError(
                "give --target and --drafter to decode here, or --server to ask a running server"
            )
    require_decoding(options, options.tree)
    require_sampling(options)
    if options.batch_size < 1:
        raise ValueError(f"--batch-size {options.batch_size} must be at least 1")
    for name in ("json", "plot"):
        if options[name]:
            _require_writable(f"--{name} {options[name]}", Path(options[name]).absolute())
    if options.plot and Path(options.plot).suffix not in PICTURES:
        raise ValueError(f"--plot {options.plot}: name a file that ends in {', '.join(PICTURES)}")


def _require_writable(what: str, path: Path) -> None:
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{what}: there is no folder {path.parent}")
    if path.is_dir():
        raise IsADirectoryError(f"{what} is a folder: name a file in it")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise PermissionError(f"{what}: you may not write there")
