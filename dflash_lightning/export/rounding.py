"""The weights as they are stored: on the CPU, contiguous, in one dtype, and every number finite.

in    a state dict in any precision
out   the same tensors, rounded
law   what comes back from the file is exactly what this returns
"""

from collections.abc import Mapping

import torch
from torch import Tensor


def rounded(state: Mapping[str, Tensor], dtype: torch.dtype | None) -> dict[str, Tensor]:
    """The state dict in `dtype`; None keeps every tensor's own.

    Raises:
        ValueError: a tensor holds NaN or infinity once it is rounded; float16 ends at 65,504.
    """
    tensors = {name: t.detach().to("cpu", dtype or t.dtype).contiguous() for name, t in state.items()}
    broken = [name for name, tensor in tensors.items() if not torch.isfinite(tensor).all()]
    if broken:
        was_whole = all(torch.isfinite(state[name]).all() for name in broken)
        way_out = "export in bfloat16" if was_whole else "the run has diverged: export an earlier checkpoint"
        raise ValueError(
            f"{len(broken)} tensors hold NaN or infinity in {name_of(tensors[broken[0]].dtype)}, first "
            f"{broken[0]}; {way_out}"
        )
    return tensors


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
