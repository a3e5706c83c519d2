"""Each rank with a folder of hidden states of its own, as on nodes with local disks."""

import os
from pathlib import Path
from typing import Any

from tests.ranks import jobs


def fit_from_own_states(root: str, target: str, store: str, states: str) -> dict[str, Any]:
    """`states` holds a folder for each rank, named by its number."""
    mine = str(Path(states) / os.environ["RANK"])
    return jobs.fit(root, target, store, module={"hidden_states": mine})
