"""Train DFlash drafters for speculative decoding with PyTorch Lightning."""

from pathlib import Path

__version__ = "0.1.0"

# A checkout without symbolic links has no dflash_lightning/callbacks folder: find ../callbacks instead.
_here = Path(__file__).parent
if not (_here / "callbacks").is_dir():
    __path__.append(str(_here.parent))
