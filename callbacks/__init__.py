"""Callbacks, one a file: the folder to copy from. Import them as `dflash_lightning.callbacks.<name>`."""

if not __name__.startswith("dflash_lightning."):
    raise ImportError(
        "import callbacks as dflash_lightning.callbacks.<name>: importing the top-level folder would load "
        "every class a second time, and Lightning would no longer recognise them"
    )
