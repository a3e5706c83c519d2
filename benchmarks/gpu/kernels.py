"""Flex attention against the dense reference: one micro-batch, the same weights, loss and gradient."""

from typing import Any

import torch
from torch import Tensor

from benchmarks.gpu.shapes import Shape
from dflash_lightning.data.batch import TokenBatch
from dflash_lightning.drafter.config import DrafterConfig
from dflash_lightning.drafter.mask import Attention
from dflash_lightning.drafter.model import DFlashDrafter
from dflash_lightning.objective.kinds import CrossEntropy
from dflash_lightning.target.loading import Target
from dflash_lightning.training.forward import draft_blocks


def random_batch(shape: Shape, device: torch.device) -> TokenBatch:
    """One micro-batch with all its anchors, supervised but for the prompt."""
    generator = torch.Generator().manual_seed(1)
    prompt, last = shape.length // 8, shape.length - 2
    anchors = torch.stack(
        [
            (prompt + torch.randperm(last - prompt, generator=generator)[: shape.num_anchors]).sort().values
            for _ in range(shape.rows)
        ]
    )
    ids = torch.randint(2, shape.vocabulary - 1, (shape.rows, shape.length), generator=generator)
    batch = TokenBatch(
        input_ids=ids,
        loss_mask=(torch.arange(shape.length) >= prompt).expand(shape.rows, -1).contiguous(),
        lengths=torch.full((shape.rows,), shape.length),
        anchors=anchors,
        keep=torch.ones_like(anchors, dtype=torch.bool),
        sample_ids=torch.arange(shape.rows),
        bucket=0,
    )
    return batch.to(device)


def compare(target: Target, config: DrafterConfig, shape: Shape, device: torch.device) -> dict[str, Any]:
    """Relative differences of flex from dense attention, both in bf16, and of dense bf16 from dense fp32.

    A bf16 kernel is right where the first is not larger than the second. Flex has no backward pass on CPU:
    there only losses are compared.
    """
    batch = random_batch(shape, device)
    states = target.tapped_states(batch.input_ids, config.target_layer_ids, final=False)

    def run(attention: Attention, *, bf16: bool) -> tuple[Tensor, Tensor | None]:
        drafter = DFlashDrafter(config, attention=attention, activation_checkpointing=True).to(device)
        backward = device.type == "cuda"
        with torch.autocast(device.type, torch.bfloat16, enabled=bf16), torch.set_grad_enabled(backward):
            outcome = draft_blocks(
                batch, states, target=target, drafter=drafter, objective=CrossEntropy(), head_chunk=2048
            )
        if not backward:
            return outcome.loss, None
        outcome.numerator.backward()
        gradient = torch.cat([p.grad.flatten() for p in drafter.parameters() if p.grad is not None])
        return outcome.loss.detach(), gradient

    exact, dense, flex = run("sdpa", bf16=False), run("sdpa", bf16=True), run("flex", bf16=True)
    found: dict[str, Any] = {"blocks": batch.anchors.numel(), "tokens": batch.input_ids.numel()}
    for index, what in enumerate(("loss", "gradient")):
        a, b, c = exact[index], dense[index], flex[index]
        if a is not None and b is not None and c is not None:
            found[f"{what}: flex bf16 from dense bf16"] = _apart(c, b)
            found[f"{what}: dense bf16 from dense fp32"] = _apart(b, a)
            found[f"{what}: flex bf16 from dense fp32"] = _apart(c, a)
    return found


def _apart(one: Tensor, other: Tensor) -> float:
    """Relative L2 distance."""
    return float((one.double() - other.double()).norm() / other.double().norm())
