"""Settings of `prepare`, checked before any file is read."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dflash_lightning.data.loss_mask import Turns


@dataclass(frozen=True, kw_only=True)
class PrepareConfig:
    input: tuple[str, ...]
    """Files (JSON Lines or Parquet), folders or globs of them, or datasets saved on disk."""
    output: str
    """Folder of the token store."""
    template: str | None = None
    """Text of a chat template; None: the tokenizer's own."""
    template_arguments: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the template by name; the same as in serving."""
    stop_tokens: tuple[str, ...] = ()
    """Tokens that end an answer, besides the target's own stop tokens."""
    turns: Turns = "all"
    """Train on every answer of a chat, or on the last one only."""
    max_length: int | None = None
    """Longest row in tokens; None: no limit."""
    truncate: bool = False
    """Cut longer rows instead of skipping them."""
    validation_share: float = 0.02
    """Share of rows held out, chosen by a hash of their tokens; not used with validation_input."""
    validation_input: tuple[str, ...] = ()
    """Inputs that are held out as a whole; equal rows of `input` are skipped."""
    max_skipped: float = 0.05
    """Share of skipped rows above which nothing is written."""
    workers: int | None = None
    """Processes; None: as many as the machine has cores and the input has work for."""
    overwrite: bool = False
    """Replace the token store at `output`."""

    def __post_init__(self) -> None:
        if not self.input:
            raise ValueError("no input: name at least one file, folder or glob")
        if self.max_length is not None and self.max_length < 2:
            raise ValueError(
                f"max_length must be at least 2, an anchor and a token to draft, got {self.max_length}"
            )
        if self.truncate and self.max_length is None:
            raise ValueError("truncate needs max_length: it says where to cut")
        if not 0 <= self.validation_share <= 1:
            raise ValueError(f"validation_share must be between 0 and 1, got {self.validation_share}")
        if not 0 <= self.max_skipped < 1:
            raise ValueError(f"max_skipped must be at least 0 and below 1, got {self.max_skipped}")
        if self.workers is not None and self.workers < 1:
            raise ValueError(f"workers must be at least 1, got {self.workers}")
