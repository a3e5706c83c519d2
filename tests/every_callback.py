"""All observing callbacks together, and every name that they promise to log (docs/dashboard.md)."""

from lightning import Callback

from dflash_lightning.callbacks.acceptance import Acceptance
from dflash_lightning.callbacks.bucket_mix import BucketMix
from dflash_lightning.callbacks.grad_direction import GradDirection
from dflash_lightning.callbacks.grad_norm import GradNorm
from dflash_lightning.callbacks.loss_bands import LossBands
from dflash_lightning.callbacks.step_guard import StepGuard
from dflash_lightning.callbacks.throughput import Throughput

NAMES = {
    "train": ["step", "loss", "accuracy", "tau", "lr", "grad_norm", "grad_norm_running", "clipped_pct"],
    "batch": ["bucket_0_pct", "bucket_0_pct_total", "bucket_0_samples_pct", "bucket_0_tokens_pct",
              "avg_seq_len", "max_seq_len", "batch_size", "padding_efficiency", "mix_distance"],
    "loss": ["bucket_0", "spread", "mix_pct", "out_of_band"],
    "acceptance": ["bucket_0"],
    "direction": ["cosine", "cosine_min", "noise_scale"],
    "guard": ["skipped_steps", "skipped_in_a_row"],
    "throughput": ["tokens_per_s", "padded_tokens_per_s", "samples_per_s", "step_s"],
    "time": ["data_pct", "target_pct", "drafter_pct", "optimizer_pct", "storage_pct", "other_pct"],
    "memory": ["host_gib", "device_gib"],
}  # fmt: skip
DOCUMENTED = {f"{group}/{name}" for group, names in NAMES.items() for name in names}


def every_callback() -> list[Callback]:
    return [
        GradNorm(),
        BucketMix(),
        LossBands(),
        GradDirection(every_n_steps=1),
        StepGuard(),
        Throughput(),
        Acceptance(),
    ]
