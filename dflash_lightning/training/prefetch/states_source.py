"""Where the hidden states of a rank come from: its targets, inline or ahead of training.

in    a module that is set up, the policy of its prefetch
out   states of a batch for whoever asks; a loader that brings states along
law   with `in_order` the two give the same training bit for bit
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from lightning import Trainer
from torch.utils.data import DataLoader

from dflash_lightning.data.batch import TokenBatch
from dflash_lightning.target.device_map import target_devices
from dflash_lightning.target.dispatch import PrefetchPolicy
from dflash_lightning.target.forward import TargetForward
from dflash_lightning.target.hidden_states import TargetStates
from dflash_lightning.target.loading import Target
from dflash_lightning.target.pipeline import TargetPipeline
from dflash_lightning.target.pipeline_queues import BatchCost
from dflash_lightning.target.side_streams import SideStreams
from dflash_lightning.target.stored.reading import StoredStates
from dflash_lightning.target.twins import one_for_each
from dflash_lightning.training.prefetch.prefetching_loader import PrefetchingLoader
from dflash_lightning.training.prefetch.stored_states import read_states

if TYPE_CHECKING:
    from dflash_lightning.training.target_steps import TargetSteps

StatesOf = Callable[[TokenBatch], TargetStates]


@dataclass(frozen=True)
class StatesShape:
    """How large the hidden states of a token are."""

    features: int
    """Numbers a token: taps times width, and the final state where it is asked for."""
    itemsize: int

    def cost(self, batch: TokenBatch) -> BatchCost:
        """What is known of a batch before its forward pass."""
        tokens = batch.input_ids.numel()
        return BatchCost(tokens=tokens, bucket=batch.bucket, bytes=tokens * self.features * self.itemsize)


class StatesSource:
    """One rank's source of hidden states; `pipeline` is None where everything runs inline."""

    def __init__(
        self,
        inline: StatesOf,
        *,
        ahead: Sequence[StatesOf],
        names: Sequence[str],
        shape: StatesShape,
        policy: PrefetchPolicy,
    ) -> None:
        """
        Args:
            inline: States of a batch in the training thread: validation, and training without a pipeline.
            ahead: One callable for each prefetching thread; states come finished, on the drafter's device.
            names: What messages and counters call the devices of `ahead`.
            policy: A depth of 0 means no pipeline.
        """
        self.inline = inline
        self.pipeline: TargetPipeline | None = None
        if policy.depth:
            self.pipeline = TargetPipeline(ahead, cost=shape.cost, policy=policy, names=names)

    def over(
        self, loader: DataLoader[TokenBatch], trainer: Trainer
    ) -> "DataLoader[TokenBatch] | PrefetchingLoader":
        """The loader that Lightning iterates: with states where there is a pipeline, else the one given."""
        return PrefetchingLoader(loader, self.pipeline, trainer) if self.pipeline else loader

    def close(self) -> None:
        """End what runs ahead."""
        if self.pipeline is not None:
            self.pipeline.close()


def default_policy(home: torch.device, *, own_devices: int) -> PrefetchPolicy:
    """Where the user says nothing. A CPU without target devices runs one thing after the other: depth 0."""
    if home.type == "cpu" and not own_devices:
        return PrefetchPolicy(depth=0)
    return PrefetchPolicy()


def _default_policy_of(module: "TargetSteps", home: torch.device) -> PrefetchPolicy:
    if module.target_settings.sharded:  # ranks gather its layers in step, which a thread of each would not
        return PrefetchPolicy(depth=0)
    return default_policy(home, own_devices=module.target_devices)


def devices_of(module: "TargetSteps") -> list[torch.device]:
    """The devices of this rank's targets."""
    trainer = module.trainer
    return target_devices(
        trainer.strategy.root_device,
        local_rank=trainer.local_rank,
        local_world=trainer.num_devices,
        count=module.target_devices,
    )


def states_source(module: "TargetSteps", target: Target, devices: Sequence[torch.device]) -> StatesSource:
    """States from disk where the module has them; else from `target`, which lives on the first of `devices`,
    and its twins on the others."""
    taps, final = module.drafter_config.target_layer_ids, module.objective.needs_target_logits
    home = module.trainer.strategy.root_device
    if module.stored_states is not None:
        inline, ahead, names = _from_disk(module.stored_states, taps, final=final, home=home)
    else:
        inline, ahead, names = _from_targets(target, devices, taps, final=final, home=home)
    return StatesSource(
        inline,
        ahead=ahead,
        names=names,
        shape=StatesShape(target.hidden_size * (len(taps) + final), target.dtype.itemsize),
        policy=module.prefetch or _default_policy_of(module, home),
    )


Sources = tuple[StatesOf, list[StatesOf], list[str]]
"""Inline, ahead, and the names of those ahead."""


def _from_targets(
    target: Target, devices: Sequence[torch.device], taps: Sequence[int], *, final: bool, home: torch.device
) -> Sources:
    each = one_for_each(target, devices)
    forwards = [TargetForward(target, taps, final=final, home=home) for target in each]
    ahead = [_ahead(forward) for forward in forwards]
    names = [f"target {i} on {device}" for i, device in enumerate(devices)]
    return lambda batch: forwards[0](batch.input_ids), ahead, names


def _ahead(forward: TargetForward) -> StatesOf:
    return lambda batch: forward.ahead(batch.input_ids)


def _from_disk(stored: StoredStates, taps: Sequence[int], *, final: bool, home: torch.device) -> Sources:
    streams = SideStreams([home])

    def inline(batch: TokenBatch) -> TargetStates:
        return read_states(stored, batch, taps, final=final).to(home, non_blocking=True)

    return inline, [lambda batch: streams.finish(lambda: inline(batch))], ["hidden states on disk"]
