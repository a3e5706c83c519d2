"""What other trainers call the things that are judged.

in    rows with the names of any trainer
out   rows with ours
law   our own names come first: a row that has them is left as it is
"""

from dflash_lightning.report.sources.rows import Row

ALIASES: dict[str, tuple[str, ...]] = {
    "train/step": ("step", "global_step", "train/global_step", "iteration", "iter", "trainer/global_step",
                   "_step"),
    "train/loss": ("loss", "train_loss", "training_loss", "loss/train", "lm_loss", "lm loss",
                   "loss_metrics/global_avg_loss"),
    "train/grad_norm": ("grad_norm", "gradient_norm", "grad norm", "grad-norm", "gnorm"),
    "train/lr": ("lr", "learning_rate", "train/learning_rate", "learning-rate", "learning rate"),
    "train/accuracy": ("accuracy", "acc", "train_accuracy", "train/acc", "train_acc"),
    "val/loss": ("eval_loss", "eval/loss", "val_loss", "valid_loss", "validation_loss"),
    "seq_len": ("seq_length", "sequence_length", "padded_length", "max_length", "length"),
    "bucket": ("bucket_id", "bucket_idx"),
    "time": ("_timestamp", "timestamp", "wall_time", "unix_time"),
}  # fmt: skip
"""Our name -> what others call it, the likeliest first (HF Trainer, torchtitan, Megatron, fairseq, W&B)."""


def with_our_names(row: Row) -> Row:
    """The row, with our names for what is found under another; the step alone keeps its old name too."""
    renamed = dict(row)
    for ours, others in ALIASES.items():
        theirs = next((name for name in others if name in row), None)
        if theirs is not None and ours not in row:
            renamed[ours] = renamed.pop(theirs)
    return renamed


def looked_for(name: str) -> str:
    """For a message: every name under which `name` would have been found."""
    return ", ".join((name, *ALIASES[name]))
