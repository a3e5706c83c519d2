"""Where things lie under a prefix. One place decides, every reader and writer asks here.

    data/step=8-1a2b3c4d.ckpt                 a torch.save file; shards: data/step=8-1a2b3c4d/rank=0.ckpt
    manifests/step=000000000008-1a2b3c4d.json what makes the data a checkpoint
    last.json, best.json                      pointers for people and scripts: hints only

law   data and manifest of one save share a name, step=8-1a2b3c4d, that no other save ever has
"""

import re
from uuid import uuid4

DATA = "data/"
MANIFESTS = "manifests/"
PROBES = "probe/"
LAST = "last.json"
BEST = "best.json"
_NAME = re.compile(r"step=(\d+)-([0-9a-f]{8})")
_MANIFEST_KEY = re.compile(rf"{MANIFESTS}{_NAME.pattern}\.json")
_DATA_KEY = re.compile(rf"{DATA}({_NAME.pattern})(?:\.ckpt|/rank=\d+\.ckpt)")


def new_name(step: int) -> str:
    """Unique for each attempt, so that two of the same step cannot mix."""
    return f"step={step}-{uuid4().hex[:8]}"


def require_name(name: str) -> int:
    """The step in a name. Raises ValueError for anything else."""
    found = _NAME.fullmatch(name)
    if found is None or name != f"step={int(found[1])}-{found[2]}":
        raise ValueError(f"{name!r} is not the name of a checkpoint, such as step=8-1a2b3c4d")
    return int(found[1])


def data_key(name: str) -> str:
    return f"{DATA}{name}.ckpt"


def shard_key(name: str, rank: int) -> str:
    return f"{DATA}{name}/rank={rank}.ckpt"


def manifest_key(name: str) -> str:
    step = require_name(name)
    return f"{MANIFESTS}step={step:012d}-{name.rpartition('-')[2]}.json"


def name_of_manifest(key: str) -> str | None:
    """None for a key that is no manifest's."""
    found = _MANIFEST_KEY.fullmatch(key)
    return None if found is None else f"step={int(found[1])}-{found[2]}"


def name_of_data(key: str) -> str | None:
    """None for a key that is no checkpoint's data."""
    found = _DATA_KEY.fullmatch(key)
    return None if found is None else found[1]


def below(prefix: str, key: str) -> str:
    """A store's key as it is called under the prefix."""
    return key.removeprefix(f"{prefix}/") if prefix else key
