"""What gives a rank its hidden states, which decides what can be done where training waits for them."""

from typing import Literal

StatesFrom = Literal["own devices", "drafter's device", "disk"]
"""own devices: targets run on devices of their own, which could be drafters instead. drafter's device: target
and drafter share one. disk: they were stored before, no target runs, and one thread a rank reads them."""
