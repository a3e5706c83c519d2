"""A worker that is always there: one that died is replaced, and hears everything again.

law   a death is noticed at the next look, without waiting; workers that die again and again are replaced at a
      slower and slower pace, so a broken machine does not spend its time on starting them
law   a kind of worker that never says a word is given up for the other kind: training that runs stores its
      checkpoints, whatever keeps a second process from starting here
"""

import logging
import time
from collections.abc import Callable, Sequence

from dflash_lightning.checkpoint.snapshots.arenas import Arenas
from dflash_lightning.checkpoint.writing.messages import Channel, Report, Save, Stored

log = logging.getLogger(__name__)
LONGEST_PAUSE_S = 60.0
SILENT_DEATHS = 3
"""As many workers may die one after the other before the first report of any."""


class Keeper:
    """Raises: OSError where the first worker cannot be started."""

    def __init__(
        self, open_channel: Callable[[], Channel], arenas: Arenas, *, otherwise: Callable[[], Channel]
    ) -> None:
        self._open_channel, self._otherwise = open_channel, otherwise
        self._arenas = arenas
        self._deaths = 0
        self._silent = True
        self._not_before = 0.0
        self._hurrying = False
        self.channel = self._open()

    def reports(self) -> list[Report]:
        found = self.channel.reports()
        self._silent = self._silent and not found
        if any(isinstance(report, Stored) for report in found):
            self._deaths = 0
        return found

    def revive(self, saves: Callable[[], Sequence[Save]]) -> str | None:
        """Replace a dead worker and give it `saves`. Returns why the old one died, if it did."""
        reason = self.channel.death()
        if reason is None or time.monotonic() < self._not_before:
            return None
        self.channel.stop(0.0)
        self._not_before = time.monotonic() + min(LONGEST_PAUSE_S, 2.0**self._deaths)
        self._deaths += 1
        self._give_up_on_silence()
        try:
            self.channel = self._open()
        except (
            OSError
        ) as error:  # no memory or no process for it now: the old one stays dead, try again later
            log.warning("the checkpoint writer died (%s) and cannot be started again: %s", reason, error)
            return None
        for save in saves():
            self.channel.submit(save)
        return reason

    def hurry(self) -> None:
        self._hurrying = True
        self.channel.hurry()

    def _give_up_on_silence(self) -> None:
        if self._silent and self._deaths == SILENT_DEATHS:
            self._open_channel = self._otherwise
            log.warning(
                "the checkpoint writer's process ended %d times before it had stored anything; what it said "
                "is above. A thread of the trainer stores the checkpoints from here on",
                SILENT_DEATHS,
            )

    def _open(self) -> Channel:
        channel = self._open_channel()
        for slot, arena in enumerate(self._arenas):
            channel.attach(slot, arena)
        if self._hurrying:
            channel.hurry()
        return channel
