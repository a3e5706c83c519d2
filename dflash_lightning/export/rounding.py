"""The weights as they are stored: on the CPU, contiguous, and every number finite.

in    a state dict in any precision
out   the same tensors, rounded
law   what comes back from the file is exactly what this returns
"""

from collections import Counter
from collections.abc import Mapping

import torch
from torch import Tensor


def rounded(state: Mapping[str, Tensor], dtype: torch.dtype | None) -> dict[str, Tensor]:
    """The state dict in `dtype`; None keeps every tensor's own.

    Raises:
        ValueError: a tensor holds NaN or infinity once it is rounded; float16 ends at 65,504.
    """
    return rounded_like(state, {name: dtype or t.dtype for name, t in state.items()})


def rounded_like(state: Mapping[str, Tensor], dtypes: Mapping[str, torch.dtype]) -> dict[str, Tensor]:
    """As rounded, each tensor to its own entry of `dtypes`; one without an entry keeps what it has."""
    tensors = {
        name: t.detach().to("cpu", dtypes.get(name, t.dtype)).contiguous() for name, t in state.items()
    }
    broken = [name for name, tensor in tensors.items() if not torch.isfinite(tensor).all()]
    if broken:
        was_whole = all(torch.isfinite(state[name]).all() for name in broken)
        way_out = "export in bfloat16" if was_whole else "the run has diverged: export an earlier checkpoint"
        raise ValueError(
            f"{len(broken)} tensors hold NaN or infinity in {name_of(tensors[broken[0]].dtype)}, first "
            f"{broken[0]}; {way_out}"
        )
    return tensors


def precision(state: Mapping[str, Tensor], dtype: torch.dtype | None = None) -> str:
    """Of `rounded(state, dtype)` in words, most numbers first: bfloat16, or bfloat16 and float32."""
    if dtype is not None:
        return name_of(dtype)
    numbers: Counter[str] = Counter()
    for tensor in state.values():
        numbers[name_of(tensor.dtype)] += tensor.numel()
    return " and ".join(name for name, _ in numbers.most_common())


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
