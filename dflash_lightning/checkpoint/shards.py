"""A state that is split over ranks: each rank's part as a plain state, and parts as a whole or other parts.

in    a state whose tensors are DTensors, split along their first axis over all ranks
out   the same state with this rank's rows in their place: no collective, no copy
law   merge_shards of all parts is the state of one process; reshard gives what that many ranks would hold
"""

# A "path" is the way to a tensor in nested containers: optimizer_states/0/state/3/exp_avg

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Shard

Keys = tuple[Any, ...]
ENTRY = "shards"
"""What a part says of itself: {"rank": 0, "world": 2, "rows": {path: rows of the whole tensor}}."""


def own_part(state: dict[str, Any], *, rank: int, world: int) -> dict[str, Any]:
    """This rank's rows of every DTensor. Raises: ValueError for one that is split in another way."""
    rows: dict[str, int] = {}

    def local(keys: Keys, value: Any) -> Any:
        if not isinstance(value, DTensor):
            return value
        path = _path(keys)
        if value.placements != (Shard(0),) or value.device_mesh.size() != world:
            raise ValueError(
                f"{path} is split as {value.placements} over {value.device_mesh.size()} of {world} ranks; "
                "only what is split along its first axis, over all ranks, can be saved"
            )
        rows[path] = value.shape[0]
        return value.to_local()

    part = _mapped(local, state)
    return {**part, ENTRY: {"rank": rank, "world": world, "rows": rows}}


def merge_shards(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The whole state, from the parts of all ranks in their order."""
    return {name: value for name, value in reshard(parts, rank=0, world=1).items() if name != ENTRY}


def reshard(parts: Sequence[dict[str, Any]], *, rank: int, world: int) -> dict[str, Any]:
    """What rank `rank` of `world` holds of a state that was saved by len(parts) ranks.

    Raises: ValueError where the parts are not those of one save.
    """
    rows = _require_one_save(parts)

    def joined(keys: Keys, value: Any) -> Any:
        path = _path(keys)
        if path not in rows:
            return value
        values = [_at(part, keys) for part in parts]
        have = sum(len(value) for value in values)
        if have != rows[path]:
            raise ValueError(f"the shards hold {have} rows of {path}, which has {rows[path]}")
        return _rows_of(values, *share(have, rank=rank, world=world))

    part = _mapped(joined, {name: value for name, value in parts[0].items() if name != ENTRY})
    return {**part, ENTRY: {"rank": rank, "world": world, "rows": rows}}


def share(rows: int, *, rank: int, world: int) -> tuple[int, int]:
    """First row and the row behind the last, of torch.chunk's division: the last ranks may hold nothing."""
    each = -(-rows // world)
    return min(rank * each, rows), min((rank + 1) * each, rows)


def load_shards(folder: Path) -> list[dict[str, Any]]:
    """The parts in a folder of rank=0.ckpt, rank=1.ckpt, ...: mapped, so only what is used is read."""
    count = len([*folder.glob("rank=*.ckpt")])
    paths = [folder / f"rank={rank}.ckpt" for rank in range(count)]
    return [torch.load(path, map_location="cpu", weights_only=True, mmap=True) for path in paths]


def _rows_of(values: Sequence[Tensor], start: int, stop: int) -> Tensor:
    """Rows start to stop of the values one below the other; only those are touched."""
    pieces, first = [], 0
    for value in values:
        low, high = max(start - first, 0), min(stop - first, len(value))
        if low < high:
            pieces.append(value[low:high])
        first += len(value)
    return torch.cat(pieces) if pieces else values[0][:0].clone()


def _require_one_save(parts: Sequence[dict[str, Any]]) -> dict[str, int]:
    said = [part.get(ENTRY) for part in parts]
    expected = [(rank, len(parts)) for rank in range(len(parts))]
    if None in said or [(entry["rank"], entry["world"]) for entry in said if entry] != expected:
        raise ValueError(f"these {len(parts)} files are not the shards of one checkpoint, in order")
    rows: dict[str, int] = parts[0][ENTRY]["rows"]
    return rows


def _mapped(function: Callable[[Keys, Any], Any], state: Any, keys: Keys = ()) -> Any:
    """`function` of way and leaf, for every leaf."""
    if isinstance(state, dict):
        return {key: _mapped(function, value, (*keys, key)) for key, value in state.items()}
    if type(state) in (list, tuple):
        return type(state)(_mapped(function, value, (*keys, i)) for i, value in enumerate(state))
    return function(keys, state)


def _at(state: Any, keys: Keys) -> Any:
    for key in keys:
        state = state[key]
    return state


def _path(keys: Keys) -> str:
    return "/".join(map(str, keys))
