"""Imported once by the process that ranks are forked from: all imports, and a config parsed, since the parser
reads the source of every class that it meets."""

from dflash_lightning.lightning_cli import read_config
from tests.ranks import forked as forked
from tests.ranks import watched as watched
from tests.ranks.pool import ROOT

read_config([f"--config={ROOT}/configs/tiny.yaml"])
