"""WindowSteps with a frozen target: every step receives a batch together with its hidden states.

in    batches of tokens, or of (tokens, states) where the target runs ahead
out   (TokenBatch, TargetStates) on the drafter's device, in training_step and validation_step alike
law   the pipeline shows nowhere else: the cursor counts finished windows, whatever was prefetched
"""

from typing import Any

from dflash_lightning.data.batch import TokenBatch
from dflash_lightning.drafter.config import DrafterConfig
from dflash_lightning.objective.kinds import Objective
from dflash_lightning.target.dispatch import PrefetchPolicy
from dflash_lightning.target.ends import TargetEnds, ends_of
from dflash_lightning.target.hidden_states import TargetStates
from dflash_lightning.target.loading import Target
from dflash_lightning.target.pipeline import TargetPipeline
from dflash_lightning.target.stored.reading import StoredStates
from dflash_lightning.training.build import TargetSettings, build_target
from dflash_lightning.training.optimizer import AdamWConfig
from dflash_lightning.training.prefetch.states_source import StatesSource, devices_of, states_source
from dflash_lightning.training.sharded_target import build_sharded_target
from dflash_lightning.training.window_steps import WindowSteps


class TargetSteps(WindowSteps):
    """Owns the rank's targets, their pipeline, and what the drafter borrows of them."""

    drafter_config: DrafterConfig
    objective: Objective

    def __init__(
        self,
        optimizer: AdamWConfig,
        *,
        max_skipped_steps: int,
        target: str,
        target_settings: TargetSettings,
        target_devices: int,
        prefetch: PrefetchPolicy | None,
    ) -> None:
        super().__init__(optimizer, max_skipped_steps=max_skipped_steps)
        self.target_name = target
        self.target_settings = target_settings
        self.target_devices = target_devices
        self.prefetch = prefetch
        # Neither is an nn.Module: they stay out of checkpoints, the optimizer and DDP.
        self.target: Target | None = None
        self.target_ends: TargetEnds | None = None
        self.stored_states: StoredStates | None = None
        self.states: StatesSource | None = None

    @property
    def pipeline(self) -> TargetPipeline | None:
        """What runs ahead: its policy, its counters. None before the target is loaded, and without any."""
        return None if self.states is None else self.states.pipeline

    def set_prefetch(self, policy: PrefetchPolicy) -> None:
        """Replace the policy, at any time. Raises ValueError where the target has been loaded without a
        pipeline or is to go on without one: that is decided in a callback's `setup`, or in YAML."""
        if self.pipeline is not None:
            self.pipeline.set_policy(policy)
        elif self.states is not None and policy.depth:
            raise ValueError(
                "the target was loaded to run inline (model.prefetch had depth 0), so no pipeline can begin "
                "now: set model.prefetch in YAML, or the policy in a callback's setup"
            )
        self.prefetch = policy

    def load_target(self) -> None:
        """The target on the devices it runs on; its ends on the drafter's."""
        devices = devices_of(self)
        layers = None if self.stored_states is None else 1  # then it lends its embedding and head only
        if self.target_settings.sharded:
            self.target = build_sharded_target(self.trainer, self.target_name, self.target_settings)
        else:
            self.target = build_target(self.target_name, self.target_settings, devices[0], layers=layers)
        self.target_ends = ends_of(self.target, self.trainer.strategy.root_device)
        self.states = states_source(self, self.target, devices)

    def on_fit_start(self) -> None:
        self.data.feed = self.states

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> tuple[TokenBatch, TargetStates]:
        """Steps receive a batch with its hidden states: those that came along, else computed here."""
        if isinstance(batch, TokenBatch):
            return batch, self.target_states(batch)
        tokens, states = batch
        states.keep_for_this_stream()
        return tokens, states

    def target_states(self, batch: TokenBatch) -> TargetStates:
        """What the target computes of a batch, here and now; read where it was stored before."""
        assert self.states is not None
        return self.states.inline(batch)

    @property
    def place_in_window(self) -> int | None:
        """The plan's micro-step of the batch in training, where a pipeline may change their order."""
        return None if self.pipeline is None else self.pipeline.place
