"""LightningDataModule: owns the plan, the sampler and the cursor.

in    a token store written by `prepare`, PlanConfig
out   loaders of TokenBatch for this rank; `finish_window()` moves the cursor when an optimizer step is done
law   its state is rank-free: a checkpoint resumes on any world size, and each sample still comes once
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any, Protocol

from lightning import LightningDataModule, Trainer
from lightning.pytorch.utilities import rank_zero_info, rank_zero_warn
from torch.utils.data import DataLoader

from dflash_lightning.data.batch import TokenBatch
from dflash_lightning.data.collate import AnchorRule, AnchorSlots, BatchDataset
from dflash_lightning.data.epochs import PlannedEpochs, Position
from dflash_lightning.data.plan_state import require_same_plan, saved_plan
from dflash_lightning.data.sampler import InterleavedBatchSampler
from dflash_lightning.data.split import Split
from dflash_lightning.data.store import TokenStore
from dflash_lightning.plan.config import PlanConfig
from dflash_lightning.plan.epoch import resolve_edges
from dflash_lightning.plan.rehearsal import rehearsal
from dflash_lightning.plan.summary import describe, final_run_warning, summarize
from dflash_lightning.plan.windows import Window, as_ghost, require_ranks_fit


class Feed(Protocol):
    """What a module may put between the training loader and Lightning, such as the target that runs ahead."""

    def over(self, loader: DataLoader[TokenBatch], trainer: Trainer) -> Iterable[Any]:
        """The loader to train from: of the same length, with the same sampler."""

    def close(self) -> None:
        """The run is over, whatever ended it."""


class DFlashDataModule(LightningDataModule):
    """Chats that `prepare` has tokenised, in batches of one bucket each, interleaved so that every optimizer
    step sees the mix of the whole epoch.

    Args:
        store: Folder that `python cli.py prepare` wrote.
        test_store: Another, whose validation rows `test` measures: rows that no checkpoint was chosen by.
        plan: How samples become batches, and in which order they come.
        block_size: Block size of the drafter; taken from model.block_size.
        num_anchors: Anchors per sequence and epoch; taken from model.num_anchors.
        anchor_slots: Slots per batch: what its fullest row needs, or always num_anchors (flex attention).
        seed: Decides order and anchors, together with the epoch; nothing else does.
        template: File with the chat template of the store, where it is not the target's own.
        num_workers: Processes that pad and draw anchors ahead of training; 0 does it in the training process.
    """

    def __init__(
        self,
        store: str,
        test_store: str | None = None,
        plan: PlanConfig = PlanConfig(),  # noqa: B008  (frozen)
        block_size: int = 16,
        num_anchors: int = 512,
        anchor_slots: AnchorSlots = "batch_max",
        seed: int = 0,
        template: str | None = None,
        num_workers: int = 0,
    ) -> None:
        super().__init__()
        self.store_path = store
        self.test_store_path = test_store
        self.plan_config = plan
        self.block_size = block_size
        self.num_anchors = num_anchors
        self.anchor_slots: AnchorSlots = anchor_slots
        self.seed = seed
        self.template = template
        self.num_workers = num_workers
        self.position = Position()
        self.windows: Sequence[Window] = ()
        self.pad_token_id = 0  # any id: nothing reads a padded position
        self.rehearse = False
        """Set by a dry run: an epoch is then one window for each bucket."""
        self.feed: Feed | None = None
        """Set by the LightningModule before training; nothing here knows a model."""

    def setup(self, stage: str) -> None:
        self.store = TokenStore.open(self.store_path)
        self.held_out = self.store
        """Its validation rows are measured, by `validate` and `test`."""
        if stage == "test":
            self.held_out = TokenStore.open(self._named_test_store())
        samples = self.store.samples("train")
        config = replace(self.plan_config, edges=resolve_edges(samples, self.plan_config))
        self.epochs = self._planned(samples, config)
        self.edges: tuple[int, ...] = tuple(config.edges)  # type: ignore[arg-type]  # resolved: no rule's name
        if not len(self.held_out.samples("validation").lengths):
            self._measure_nothing(stage)
        if stage == "fit":
            require_ranks_fit(len(samples.lengths), self._world)
            # Refuses what no plan can hold, before any model is loaded; and shows what the run will see.
            summary = summarize(self.epochs.plan(0), samples)
            rank_zero_info(describe(summary))
            if warning := final_run_warning(summary):
                rank_zero_warn(warning)

    def _named_test_store(self) -> str:
        if self.test_store_path is None:
            raise ValueError(
                "data.test_store is not set, and `test` measures rows that no checkpoint was chosen by: name "
                "a token store of such rows (`prepare --validation-share 1` makes one of a file), or measure "
                "the validation rows of data.store with `validate`"
            )
        return self.test_store_path

    def _measure_nothing(self, stage: str) -> None:
        if stage != "fit":
            raise ValueError(
                f"token store {self.held_out.path} holds no validation rows, which is what {stage} measures; "
                "prepare it with a --validation-share (1: all rows) or a --validation-input"
            )
        if self.trainer:
            self.trainer.limit_val_batches = 0

    def _planned(self, samples: Any, config: PlanConfig) -> PlannedEpochs:
        return PlannedEpochs(
            samples, config, num_anchors=self.num_anchors, block_size=self.block_size, seed=self.seed
        )

    @property
    def _world(self) -> int:
        return self.trainer.world_size if self.trainer else 1

    @property
    def _on_cuda(self) -> bool:
        """Only from pinned memory does a copy to the device run beside everything else."""
        return self.trainer is not None and self.trainer.strategy.root_device.type == "cuda"

    @property
    def _cut(self) -> dict[str, int]:
        assert self.trainer is not None
        return {"world": self._world, "accumulate": self.trainer.accumulate_grad_batches}

    def train_dataloader(self) -> Iterable[Any]:
        assert self.trainer is not None
        if self.position.epoch != self.trainer.current_epoch:
            self.position = replace(self.position, epoch=self.trainer.current_epoch, cursor=0)
        epoch = self.position.epoch
        windows = self.epochs.windows(self.position, **self._cut)
        self.windows = rehearsal(windows) if self.rehearse else windows
        self._next = 0
        sampler = InterleavedBatchSampler(self.windows, rank=self.trainer.global_rank, epoch=epoch)
        rule = AnchorRule(self.num_anchors, self.anchor_slots, self.seed, epoch)
        loader = self._loader("train", sampler, rule)
        return self.feed.over(loader, self.trainer) if self.feed else loader

    def val_dataloader(self) -> DataLoader[TokenBatch]:
        """Every validation batch on exactly one rank, always in the same order, with all anchors. Ranks run
        equally many, the last ones perhaps without loss: a target that is split over ranks waits for all."""
        assert self.trainer is not None
        samples = self.held_out.samples("validation")
        longest = max(self.edges[-1], int(samples.lengths.max()))
        config = replace(self.epochs.config, edges=(*self.edges[:-1], longest))
        epochs = self._planned(samples, config)
        windows = epochs.windows(Position(), world=1, accumulate=1)
        padded = [*windows, *[as_ghost(windows[0])] * (-len(windows) % self._world)]
        mine = padded[self.trainer.global_rank :: self._world]
        rule = AnchorRule(None, "batch_max", self.seed, 0)
        return self._loader("validation", InterleavedBatchSampler(mine, rank=0, epoch=None), rule)

    def test_dataloader(self) -> DataLoader[TokenBatch]:
        """As in validation; `setup` has opened the store that is meant."""
        return self.val_dataloader()

    def _loader(
        self, split: Split, sampler: InterleavedBatchSampler, rule: AnchorRule
    ) -> DataLoader[TokenBatch]:
        store = self.store if split == "train" else self.held_out
        dataset = BatchDataset(store, split, rule, pad_token_id=self.pad_token_id)
        make = partial(
            DataLoader,
            dataset,
            sampler=sampler,
            batch_size=None,
            num_workers=self.num_workers,
            pin_memory=self._on_cuda,
        )
        # Workers forked beside communication threads can hang; a spawned one cannot.
        return make(multiprocessing_context="spawn") if self.num_workers else make()

    def teardown(self, stage: str) -> None:
        self._close_feed()

    def on_exception(self, exception: BaseException) -> None:
        """Lightning may leave the training loader open, as when a validation within the epoch fails."""
        self._close_feed()

    def _close_feed(self) -> None:
        if self.feed is not None:
            self.feed.close()
            self.feed = None

    # --- progress: called by the LightningModule, once an optimizer step

    @property
    def window(self) -> Window:
        """The window that is being trained."""
        return self.windows[self._next]

    def finish_window(self, *, applied: bool) -> Window:
        """Move the cursor over the window whose optimizer step has just been applied or skipped."""
        window = self.window
        self.position = self.position.after(window, applied=applied)
        self._next += 1
        return window

    def share_done(self, horizon: int) -> float:
        """Share of the run that is done in the middle of the current window; skipped windows do not count."""
        middle = (self.window.start + self.window.stop) / 2
        applied = self.epochs.consumed(replace(self.position, cursor=0)) + middle
        return (applied - self.position.skipped_batches) / horizon

    def horizon(self) -> int:
        """Plan batches of the whole run, from its first step to its last."""
        assert self.trainer is not None
        epochs, steps = self.trainer.max_epochs, self.trainer.max_steps
        return self.epochs.horizon(self.position, max_epochs=epochs, max_steps=steps, **self._cut)

    def state_dict(self) -> dict[str, Any]:
        position = self.epochs.settled(self.position, **self._cut)
        return {
            "position": asdict(position),
            "plan": saved_plan(self.epochs, position, self.store),
            **self._cut,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Raises ValueError where the settings of this run give another plan than the checkpoint's."""
        position = Position(**state_dict["position"])
        if self.trainer is not None and self.trainer.training:
            require_same_plan(state_dict["plan"], saved_plan(self.epochs, position, self.store))
        self.position = position
