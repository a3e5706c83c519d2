"""From a run's logs to a verdict in words and a page of pictures. No Lightning, no torch."""

from dflash_lightning.report.read import read_run as read_run
from dflash_lightning.report.run import MicroLog as MicroLog
from dflash_lightning.report.run import Run as Run
from dflash_lightning.report.verdict import Verdict as Verdict
from dflash_lightning.report.verdict import judge_run as judge_run
