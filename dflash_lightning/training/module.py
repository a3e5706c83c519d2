"""LightningModule: the frozen target, the drafter, and what a micro-batch does with them.

in    TokenBatch of this rank
out   a trained drafter; optimizer steps and what callbacks read of them: window_steps.py
law   progress is (DataModule's position, weights, moments): with `callbacks: []` a resumed run is exact
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from dflash_lightning.data.batch import TokenBatch
from dflash_lightning.drafter.config import require_block_size
from dflash_lightning.drafter.mask import Attention
from dflash_lightning.drafter.model import DFlashDrafter
from dflash_lightning.objective.kinds import CrossEntropy, Objective
from dflash_lightning.target.dispatch import PrefetchPolicy
from dflash_lightning.target.hidden_states import TargetStates
from dflash_lightning.target.identity import target_digest
from dflash_lightning.target.loading import load_config, load_tokenizer
from dflash_lightning.training.build import (
    DrafterShape,
    TargetSettings,
    build_drafter,
    drafter_config,
)
from dflash_lightning.training.checkpoints.resume import (
    catch_up_validation,
    forget_restart,
    load_extras,
    save_extras,
)
from dflash_lightning.training.checkpoints.sharding import hold_whole, shard_drafter, split_again
from dflash_lightning.training.forward import BlockOutcome, draft_blocks
from dflash_lightning.training.optimizer import AdamWConfig
from dflash_lightning.training.prefetch.stored_states import open_stored_states
from dflash_lightning.training.start.preflight import run_checks
from dflash_lightning.training.target_steps import TargetSteps
from dflash_lightning.training.tree_watch import TreeWatch
from dflash_lightning.training.validation import ValidationSums, anchor_groups, forget_validation


class DFlashModule(TargetSteps):
    """A DFlash drafter in training, next to the frozen target it will draft for.

    Args:
        target: Folder or hub name of a causal LM in Hugging Face format, or smollm2-135m-instruct (built in).
        target_settings: Precision and attention kernel of the target.
        target_devices: Devices of each rank that run the target; 0: the drafter's own, beside the drafter.
        prefetch: How the target runs ahead of training; null: two batches a device, and not on a CPU alone.
        hidden_states: Folder that `prepare --hidden-states` wrote; read in place of running the target.
        drafter: Shape of the drafter; what is left out is taken from the target.
        init_from: Folder of an exported or published drafter to start from; weights only.
        mask_token: Id or text of the token at slots to be drafted; null: a free row of the vocabulary.
        block_size: Slots of a block, the anchor included; a block drafts block_size - 1 tokens.
        num_anchors: Blocks trained per sequence and epoch, drawn anew each epoch.
        objective: CrossEntropy (the paper's), DPace or Distillation.
        attention: Kernel of the drafter: sdpa everywhere, flex on CUDA for long sequences.
        activation_checkpointing: Recompute the drafter's layers in the backward pass to save memory.
        head_chunk: Positions whose logits exist at a time; bounds the memory of head and loss.
        tree_budgets: Nodes of the trees of drafts for val/tree_tau_{M} and train/tree_streak_{M}; []: none.
        tree_every_n_steps: Optimizer steps between two looks at trees in training; 0: only in validation.
        lr: Peak learning rate.
        betas: Decay of AdamW's two moments.
        weight_decay: Applied to matrices, not to norms.
        warmup_fraction: Share of the run over which the rate rises.
        min_lr_fraction: Where the cosine ends, as a share of lr.
        max_skipped_steps: Optimizer steps in a row without a finite gradient that end the run.
        seed: Seed of the drafter's fresh weights; taken from data.seed.
    """

    def __init__(
        self,
        target: str,
        target_settings: TargetSettings = TargetSettings(),  # noqa: B008  (frozen)
        target_devices: int = 0,
        prefetch: PrefetchPolicy | None = None,
        hidden_states: str | None = None,
        drafter: DrafterShape = DrafterShape(),  # noqa: B008
        init_from: str | None = None,
        mask_token: int | str | None = None,
        block_size: int = 16,
        num_anchors: int = 512,
        objective: Objective = CrossEntropy(),  # noqa: B008
        attention: Attention = "sdpa",
        activation_checkpointing: bool = False,
        head_chunk: int = 2048,
        tree_budgets: tuple[int, ...] = (16, 64),
        tree_every_n_steps: int = 100,
        lr: float = 6e-4,
        betas: tuple[float, float] = (0.9, 0.95),
        weight_decay: float = 0.0,
        warmup_fraction: float = 0.04,
        min_lr_fraction: float = 0.0,
        max_skipped_steps: int = 5,
        seed: int = 0,
    ) -> None:
        optimizer = AdamWConfig(
            lr=lr,
            betas=betas,
            weight_decay=weight_decay,
            warmup_fraction=warmup_fraction,
            min_lr_fraction=min_lr_fraction,
        )
        super().__init__(
            optimizer,
            max_skipped_steps=max_skipped_steps,
            target=target,
            target_settings=target_settings,
            target_devices=target_devices,
            prefetch=prefetch,
        )
        self.hidden_states = hidden_states
        self.shape = drafter
        self.init_from = init_from
        self.mask_token = mask_token
        self.block_size = block_size
        self.num_anchors = num_anchors
        self.objective = objective
        self.attention: Attention = attention
        self.activation_checkpointing = activation_checkpointing
        self.head_chunk = head_chunk
        self.seed = seed
        require_block_size(block_size)  # before anything counts slots
        self.drafter: DFlashDrafter | None = None
        self.tree_watch = TreeWatch(tree_budgets, tree_every_n_steps)
        self.validation = ValidationSums(block_size, tree_budgets)
        self.validated_at: int | None = None
        """Optimizer steps made when validation last ran to its end."""

    # --- set-up

    def setup(self, stage: str) -> None:
        """Everything that can be refused without weights is refused here."""
        super().setup(stage)
        self.target_config = load_config(self.target_name)
        self.target_digest = target_digest(self.target_name)
        self.tokenizer = load_tokenizer(self.target_name)
        self.drafter_config = drafter_config(
            self.target_config,
            self.tokenizer,
            self.shape,
            block_size=self.block_size,
            mask_token=self.mask_token,
        )
        template = Path(self.data.template).read_text(encoding="utf-8") if self.data.template else None
        rows = self.target_config.vocab_size
        for store in (self.data.store, self.data.held_out):
            store.require_matches(self.tokenizer, vocab_rows=rows, template=template)
        if self.hidden_states is not None:
            self.stored_states = open_stored_states(self, self.hidden_states)
        run_checks(self.trainer, self, self.data)

    def configure_model(self) -> None:
        if self.drafter is not None:
            return
        self.drafter = build_drafter(
            self.drafter_config,
            init_from=self.init_from,
            attention=self.attention,
            activation_checkpointing=self.activation_checkpointing,
            seed=self.seed,
        )
        if self.device_mesh is not None:
            shard_drafter(self.drafter, self.device_mesh)
        self.load_target()

    # --- one micro-batch

    def _draft(self, batch: TokenBatch, states: TargetStates, tree_budgets: Sequence[int]) -> BlockOutcome:
        assert self.target_ends is not None
        assert self.drafter is not None
        return draft_blocks(
            batch,
            states,
            target=self.target_ends,
            drafter=self.drafter,
            objective=self.objective,
            head_chunk=self.head_chunk,
            tree_budgets=tree_budgets,
        )

    def training_step(self, batch: tuple[TokenBatch, TargetStates], batch_idx: int) -> Tensor:
        """Returns the raw numerator, sum of weight x loss; configure_gradient_clipping divides, once."""
        outcome = self._draft(*batch, self.tree_watch.due(self.data.position.steps + 1))
        self.window_sums.add(outcome, batch[0].bucket, place=self.place_in_window)
        self.tree_watch.add(outcome)
        return outcome.numerator

    def optimizer_step(self, *step: Any, **more: Any) -> None:
        super().optimizer_step(*step, **more)
        self.tree_watch.finish(self._sum_over_ranks, skipped=self.last_totals.non_finite > 0)
        if self.log_now:
            self.due |= self.tree_watch.take()

    # --- validation, and test: the same on the rows of data.test_store

    def on_validation_start(self) -> None:
        forget_validation(self.trainer)
        hold_whole(self)

    def on_validation_end(self) -> None:
        split_again(self)

    on_test_start, on_test_end = on_validation_start, on_validation_end

    def validation_step(self, batch: tuple[TokenBatch, TargetStates], batch_idx: int) -> None:
        tokens, states = batch
        limit = self.data.epochs.config.max_block_tokens
        for group in anchor_groups(tokens, block_size=self.block_size, max_block_tokens=limit):
            self.validation.update(self._draft(group, states, self.tree_watch.budgets))

    def test_step(self, batch: tuple[TokenBatch, TargetStates], batch_idx: int) -> None:
        self.validation_step(batch, batch_idx)

    def on_test_epoch_end(self) -> None:
        self.log_dict(self.validation.ratios("test"), prog_bar=False)
        self.validation.reset()

    def on_validation_epoch_end(self) -> None:
        self.log_dict(self.validation.ratios("val"), prog_bar=False)
        self.validation.reset()
        if not self.trainer.sanity_checking:
            self.validated_at = self.data.position.steps

    # --- resume

    def on_train_start(self) -> None:
        super().on_train_start()
        forget_restart(self.trainer)
        catch_up_validation(self)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["dflash"] = save_extras(self)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        load_extras(self, checkpoint)
