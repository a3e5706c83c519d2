"""What a dry run learns on its way, as a callback that is added to the run's own, and how it is told.

in    a fit whose windows are plan/rehearsal.py's
out   lines on rank 0: an estimate of memory, who sits where, seconds and memory of each bucket's heaviest
      batch, the stores
law   nothing is written but the probe of a store, which is deleted again
"""

import json
import socket
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_info

from dflash_lightning.checkpoint.claiming.preflight import preflight
from dflash_lightning.checkpoint.stores.errors import StoreError
from dflash_lightning.checkpoint.stores.open import open_store
from dflash_lightning.checkpoint.stores.settings import StoreSettings
from dflash_lightning.training.gather import texts_of_all_ranks
from dflash_lightning.training.module import DFlashModule
from dflash_lightning.training.prefetch.states_source import devices_of
from dflash_lightning.training.rank_zero import raise_on_all_ranks
from dflash_lightning.training.start.memory_estimate import memory_lines
from dflash_lightning.training.watch.host_memory import GIB, peak_host_gib


@dataclass(frozen=True, kw_only=True)
class Seat:
    """Where one rank runs."""

    node: str
    drafter: str
    states: str
    """Where hidden states come from: "target on cuda:2, cuda:3", or from disk."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """The optimizer step of one bucket on one rank."""

    bucket: int
    rows: int
    padded_length: int
    blocks: int
    seconds: float
    """The first of its shape: what is compiled or allocated once is in it."""
    gib: float
    """Peak so far: of the fullest of the rank's devices on GPUs, else of the process."""


class DryRun(Callback):
    """Estimates memory, tells where ranks sit, tries the stores, times each step, and says at the end that
    all went well.

    Args:
        stores: Address and settings of each checkpoint store.
        accumulate: Batches of a rank behind one optimizer step of the real run.
    """

    def __init__(self, stores: Sequence[tuple[str, StoreSettings]], *, accumulate: int) -> None:
        self.stores = stores
        self.accumulate = accumulate
        self.steps: list[Step] = []

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Before any weights are loaded: where they do not fit, the estimate has been told."""
        assert isinstance(pl_module, DFlashModule)
        rank_zero_info("\n".join(memory_lines(pl_module, accumulate=self.accumulate)))

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, DFlashModule)
        ours = json.dumps(asdict(seat_of(trainer, pl_module)))
        seats = [Seat(**json.loads(text)) for text in texts_of_all_ranks(trainer, ours)]
        rank_zero_info("\n".join(["dry run", *seat_lines(seats)]))
        for uri, settings in self.stores:
            require_store(trainer, uri, settings)
            rank_zero_info(f"checkpoints can be kept at {uri}")

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        self._begun = time.perf_counter()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        tokens, _ = batch
        assert isinstance(pl_module, DFlashModule)
        devices = {trainer.strategy.root_device, *devices_of(pl_module)}
        gib = max(peak_gib(device) for device in devices)  # waits for them
        self.steps.append(
            Step(
                bucket=tokens.bucket,
                rows=tokens.input_ids.shape[0],
                padded_length=tokens.input_ids.shape[1],
                blocks=tokens.anchors.numel(),
                seconds=time.perf_counter() - self._begun,
                gib=gib,
            )
        )

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        texts = texts_of_all_ranks(trainer, json.dumps([asdict(step) for step in self.steps]))
        ranks = [[Step(**step) for step in json.loads(text)] for text in texts]
        limit = device_gib(trainer.strategy.root_device)
        rank_zero_info("\n".join([*step_lines(ranks, limit), "dry run passed; nothing was written"]))


def seat_of(trainer: Trainer, module: DFlashModule) -> Seat:
    device = trainer.strategy.root_device
    name = f" ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else ""
    folder = module.hidden_states
    on = targets(devices_of(module), own=module.target_devices > 0)
    if module.target_settings.sharded:
        on = f"the {trainer.num_devices} ranks of the node together"
    states = f"target on {on}" if folder is None else f"hidden states from {folder}"
    return Seat(node=socket.gethostname(), drafter=f"{device}{name}", states=states)


def targets(devices: Sequence[torch.device], *, own: bool) -> str:
    """[cuda:2, cuda:3] -> "cuda:2, cuda:3"; CPUs, which stand in for devices in tests, all have one name."""
    return ", ".join(map(str, devices)) if own else "the same device"


def require_store(trainer: Trainer, uri: str, settings: StoreSettings) -> None:
    """Rank 0 tries, all ranks hear. Raises: StoreError on all of them."""
    problem: Exception | None = None
    if trainer.is_global_zero:
        try:
            preflight(*open_store(uri, settings))
        except (StoreError, OSError, ValueError) as error:
            problem = error
    raise_on_all_ranks(trainer, problem)


def peak_gib(device: torch.device) -> float:
    """Largest use so far, in GiB."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) / GIB
    return peak_host_gib()


def device_gib(device: torch.device) -> float | None:
    """What the device has; None where that is not known."""
    return torch.cuda.get_device_properties(device).total_memory / GIB if device.type == "cuda" else None


def seat_lines(seats: Sequence[Seat]) -> list[str]:
    """One line for each rank."""
    return [
        f"  rank {rank:<3} {seat.node}: drafter on {seat.drafter}, {seat.states}"
        for rank, seat in enumerate(seats)
    ]


def step_lines(ranks: Sequence[Sequence[Step]], limit_gib: float | None) -> list[str]:
    """A table of the steps; `ranks[r][i]` is step i of rank r. Of all ranks the slowest and the fullest."""
    lines = ["  bucket   rows x length   blocks   seconds   peak memory, GiB"]
    of = "" if limit_gib is None else f" of {limit_gib:.1f}"
    for steps in zip(*ranks, strict=True):
        first = steps[0]
        shape = f"{first.rows} x {first.padded_length}"
        seconds, gib = max(step.seconds for step in steps), max(step.gib for step in steps)
        lines.append(
            f"  {first.bucket:>6}   {shape:>13}   {first.blocks:>6}   {seconds:>7.2f}   {gib:.2f}{of}"
        )
    return lines
