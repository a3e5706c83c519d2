"""May an export be written into this folder? Nothing but a drafter, or the rest of an export, is replaced.

in    the folder of --output
out   whether it holds a drafter; or an error that names what would be lost
law   a model that is no DFlash drafter stays whatever the options say, and so does any file that an export
      would write or remove beside no drafter
"""

from pathlib import Path

from dflash_lightning.export.card import CARD_NAME
from dflash_lightning.export.files import (
    CONFIG_NAME,
    INDEX_NAME,
    REMOTE_CODE_NAME,
    WEIGHTS_NAME,
    is_exported,
    read_json,
)

TOUCHED = (WEIGHTS_NAME, INDEX_NAME, REMOTE_CODE_NAME, CARD_NAME)
"""Files beside config.json that an export writes or removes."""
WAY_OUT = "give another --output"


def holds_drafter(folder: Path) -> bool:
    """True: a drafter is there, which --overwrite replaces. False: there is nothing to lose.

    Raises:
        ValueError: `folder` is a file, or holds another model, or files of an export's names and no drafter.
    """
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file, and an export is a folder: {WAY_OUT}")
    if is_exported(folder):
        if not _describes_drafter(folder / CONFIG_NAME):
            raise ValueError(
                f"{folder} holds a model that is no DFlash drafter, so --overwrite does not replace it; "
                f"{WAY_OUT}"
            )
        return True
    # config.json comes last: an export that was cut short left it under its first name
    if _describes_drafter(folder / f"{CONFIG_NAME}.part"):
        return False
    lost = [name for name in TOUCHED if (folder / name).exists()]
    if lost:
        raise ValueError(
            f"{folder} holds {', '.join(lost)} and no drafter, so an export does not replace "
            f"{'it' if len(lost) == 1 else 'them'}, with --overwrite neither; {WAY_OUT}"
        )
    return False


def _describes_drafter(path: Path) -> bool:
    """Of either format; a config that cannot be read may be anybody's."""
    try:
        raw = read_json(path)
    except (OSError, ValueError):
        return False
    return (
        "DFlashDraftModel" in (raw.get("architectures") or ())
        or raw.get("speculators_model_type") == "dflash"
    )
