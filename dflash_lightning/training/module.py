"""LightningModule: the frozen target, the drafter, and what one optimizer step does with them.

in    TokenBatch of this rank
out   a trained drafter; `last_step`, `last_totals` and `last_window` for callbacks
law   progress is (DataModule's position, weights, moments): with `callbacks: []` a resumed run is exact
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from lightning import LightningModule
from lightning.pytorch.core.optimizer import LightningOptimizer
from torch import Tensor

from dflash_lightning.data.batch import TokenBatch
from dflash_lightning.data.datamodule import DFlashDataModule
from dflash_lightning.data.window_facts import WindowFacts, window_facts
from dflash_lightning.drafter.mask import Attention
from dflash_lightning.drafter.model import DFlashDrafter
from dflash_lightning.objective.kinds import CrossEntropy, Objective
from dflash_lightning.plan.windows import Window
from dflash_lightning.target.hidden_states import TargetStates
from dflash_lightning.target.loading import Target, load_config, load_target, load_tokenizer
from dflash_lightning.training.build import DrafterShape, TargetSettings, drafter_config, load_initial_weights
from dflash_lightning.training.forward import BlockOutcome, draft_blocks
from dflash_lightning.training.gather import rows_of_all_ranks
from dflash_lightning.training.logged_totals import LoggedTotals
from dflash_lightning.training.normalize import StepRecord, normalize_gradients, raw_norm
from dflash_lightning.training.optimizer import AdamWConfig
from dflash_lightning.training.preflight import run_checks
from dflash_lightning.training.resume import catch_up_validation, forget_restart, load_extras, save_extras
from dflash_lightning.training.step_guard import StepGuard, offending_batches
from dflash_lightning.training.validation import ValidationSums, anchor_groups
from dflash_lightning.training.window_sums import WindowSums, WindowTotals


class DFlashModule(LightningModule):
    """A DFlash drafter in training, next to the frozen target it will draft for.

    Args:
        target: Folder or hub name of a causal LM in Hugging Face format, or smollm2-135m-instruct (built in).
        target_settings: Precision and attention kernel of the target.
        drafter: Shape of the drafter; what is left out is taken from the target.
        init_from: Folder of an exported or published drafter to start from; weights only.
        mask_token: Id or text of the token at slots to be drafted; null: a free row of the vocabulary.
        block_size: Slots of a block, the anchor included; a block drafts block_size - 1 tokens.
        num_anchors: Blocks trained per sequence and epoch, drawn anew each epoch.
        objective: CrossEntropy (the paper's), DPace or Distillation.
        attention: Kernel of the drafter: sdpa everywhere, flex on CUDA for long sequences.
        activation_checkpointing: Recompute the drafter's layers in the backward pass to save memory.
        head_chunk: Positions whose logits exist at a time; bounds the memory of head and loss.
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
        drafter: DrafterShape = DrafterShape(),  # noqa: B008
        init_from: str | None = None,
        mask_token: int | str | None = None,
        block_size: int = 16,
        num_anchors: int = 512,
        objective: Objective = CrossEntropy(),  # noqa: B008
        attention: Attention = "sdpa",
        activation_checkpointing: bool = False,
        head_chunk: int = 2048,
        lr: float = 6e-4,
        betas: tuple[float, float] = (0.9, 0.95),
        weight_decay: float = 0.0,
        warmup_fraction: float = 0.04,
        min_lr_fraction: float = 0.0,
        max_skipped_steps: int = 5,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.target_name = target
        self.target_settings = target_settings
        self.shape = drafter
        self.init_from = init_from
        self.mask_token = mask_token
        self.block_size = block_size
        self.num_anchors = num_anchors
        self.objective = objective
        self.attention: Attention = attention
        self.activation_checkpointing = activation_checkpointing
        self.head_chunk = head_chunk
        self.optimizer_config = AdamWConfig(
            lr=lr,
            betas=betas,
            weight_decay=weight_decay,
            warmup_fraction=warmup_fraction,
            min_lr_fraction=min_lr_fraction,
        )
        self.seed = seed
        self.guard = StepGuard(max_skipped_steps)
        self.drafter: DFlashDrafter | None = None
        self.target: Target | None = None
        self.window_sums = WindowSums()
        self.validation = ValidationSums(block_size)
        self.logged = LoggedTotals()
        self.stop_votes = {"sigterm": False, "sigint": False}
        self.last_step: StepRecord | None = None
        self.last_totals = WindowTotals()
        self.last_window: WindowFacts | None = None
        self.validated_at: int | None = None
        """Optimizer steps made when validation last ran to its end."""

    # --- set-up

    @property
    def data(self) -> DFlashDataModule:
        """The DataModule that holds the plan and the cursor."""
        data = self.trainer.datamodule  # type: ignore[attr-defined]  # set by Trainer.fit
        if not isinstance(data, DFlashDataModule):
            raise TypeError(f"DFlashModule trains from a DFlashDataModule, got {type(data).__name__}")
        return data

    def setup(self, stage: str) -> None:
        """Everything that can be refused without weights is refused here."""
        self.target_config = load_config(self.target_name)
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
        self.data.store.require_matches(self.tokenizer, vocab_rows=rows, template=template)
        run_checks(self.trainer, self, self.data)

    def configure_model(self) -> None:
        if self.drafter is not None:
            return
        self.drafter = DFlashDrafter(
            self.drafter_config,
            attention=self.attention,
            activation_checkpointing=self.activation_checkpointing,
            seed=self.seed,
        )
        if self.init_from:
            load_initial_weights(self.drafter, self.init_from)
        # Target is no nn.Module: it stays out of checkpoints, the optimizer and DDP.
        self.target = load_target(
            self.target_name,
            dtype=getattr(torch, self.target_settings.dtype),
            attention=self.target_settings.attention,
            device=self.trainer.strategy.root_device,
        )

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return self.optimizer_config.build(self)

    # --- one micro-batch

    def on_after_batch_transfer(
        self, batch: TokenBatch, dataloader_idx: int
    ) -> tuple[TokenBatch, TargetStates]:
        """Run the target right behind the transfer: steps receive a batch with its hidden states."""
        assert self.target is not None
        taps = self.drafter_config.target_layer_ids
        return batch, self.target.tapped_states(
            batch.input_ids, taps, final=self.objective.needs_target_logits
        )

    def _draft(self, batch: TokenBatch, states: TargetStates) -> BlockOutcome:
        assert self.target is not None
        assert self.drafter is not None
        return draft_blocks(
            batch,
            states,
            target=self.target,
            drafter=self.drafter,
            objective=self.objective,
            head_chunk=self.head_chunk,
        )

    def training_step(self, batch: tuple[TokenBatch, TargetStates], batch_idx: int) -> Tensor:
        """Returns the raw numerator, sum of weight x loss; configure_gradient_clipping divides, once."""
        outcome = self._draft(*batch)
        self.window_sums.add(outcome)
        return outcome.numerator

    # --- one optimizer step

    def optimizer_step(
        self,
        epoch: int,
        batch_idx: int,
        optimizer: torch.optim.Optimizer | LightningOptimizer,
        optimizer_closure: Callable[[], Any] | None = None,
    ) -> None:
        self.last_lr = self.optimizer_config.apply(optimizer, self.data.share_done(self.horizon))
        super().optimizer_step(epoch, batch_idx, optimizer, optimizer_closure)
        assert self.last_step is not None
        window = self.data.finish_window(applied=not self.last_step.skipped)
        self.last_window = window_facts(window, self.data.epochs.samples.lengths)
        if self.last_totals.non_finite:
            self._report_skipped(window, self.last_step)
        else:
            self.guard.passed()
            self.logged.add(self.last_totals, self.last_window)
        self.window_sums.clear()
        self.due = self.logged.take() if self.log_now else {}

    def configure_gradient_clipping(
        self,
        optimizer: torch.optim.Optimizer,
        gradient_clip_val: int | float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Sum the window over ranks, then normalise, check and clip in one place (spec/dflash.md 2.6.1)."""
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        norm = raw_norm(parameters).to(self.device)
        votes = self.stop_votes["sigterm"], self.stop_votes["sigint"]
        self.last_totals = self.window_sums.finish(norm, votes, self._sum_over_ranks)
        self.last_step = normalize_gradients(
            parameters,
            norm=norm.item(),
            non_finite=self.last_totals.non_finite > 0,
            weight=self.last_totals.weight,
            world=self.trainer.world_size,
            accumulate=self.trainer.accumulate_grad_batches,
            max_norm=gradient_clip_val,
            step=self.data.position.steps + 1,
        )

    def _sum_over_ranks(self, tensor: Tensor) -> Tensor:
        summed = self.trainer.strategy.reduce(tensor, reduce_op="sum")
        assert isinstance(summed, Tensor)
        return summed

    def _report_skipped(self, window: Window, step: StepRecord) -> None:
        finite = torch.stack([torch.isfinite(loss) for loss in self.window_sums.losses])
        everyone = rows_of_all_ranks(self.trainer, finite.long())
        batches = offending_batches(window, everyone.bool().tolist())
        record = {"step": step.step, "epoch": self.current_epoch, "norm": str(step.norm), "batches": batches}
        folder = Path(self.trainer.log_dir or self.trainer.default_root_dir)
        self.guard.skipped(record, folder / "skipped_steps.jsonl", write=self.trainer.is_global_zero)

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Values cover all optimizer steps since the last log; never a single micro-batch."""
        if not self.step_finished:
            return
        assert self.last_step is not None
        shown = self.last_totals.ratios()
        self.log("loss", shown["train/loss"], prog_bar=True, logger=False)
        self.log("tau", shown["train/tau"], prog_bar=True, logger=False)
        self.log("tok/s", self.logged.tokens_per_second(), prog_bar=True, logger=False)
        if self.due:
            self.log_dict({**self.due, "train/lr": self.last_lr, "train/step": float(self.last_step.step)})

    @property
    def log_now(self) -> bool:
        """True where the step just finished completes a logging interval."""
        every: int = self.trainer.log_every_n_steps  # type: ignore[attr-defined]  # set by a connector
        return every > 0 and self.data.position.steps % every == 0

    @property
    def step_finished(self) -> bool:
        """True from an optimizer step to the next micro-batch: when callbacks should read last_step."""
        return not self.window_sums.losses

    # --- validation

    def validation_step(self, batch: tuple[TokenBatch, TargetStates], batch_idx: int) -> None:
        tokens, states = batch
        limit = self.data.epochs.config.max_block_tokens
        for group in anchor_groups(tokens, block_size=self.block_size, max_block_tokens=limit):
            self.validation.update(self._draft(group, states))

    def on_validation_epoch_end(self) -> None:
        self.log_dict(self.validation.ratios(), prog_bar=False)
        self.validation.reset()
        if not self.trainer.sanity_checking:
            self.validated_at = self.data.position.steps

    # --- resume

    def on_train_start(self) -> None:
        self.horizon = self.data.horizon()
        forget_restart(self.trainer)
        catch_up_validation(self)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["dflash"] = save_extras(self)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        load_extras(self, checkpoint)
