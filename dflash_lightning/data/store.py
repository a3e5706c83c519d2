"""Token store: the rows that training reads.

in    a folder written by `prepare`
out   lengths and supervised counts of a split (all at once); ids and mask of one row (memory-mapped)
law   a folder opens only if it is complete; a store of another tokenizer, template or vocabulary is refused
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, SupportsIndex

import datasets
import numpy as np
import numpy.typing as npt

from dflash_lightning.data.manifest import FILE_NAME, Manifest
from dflash_lightning.data.split import SPLITS
from dflash_lightning.data.tokenizer import ChatTokenizer, own_template, template_hash, tokenizer_hash
from dflash_lightning.plan.samples import Samples

_PREPARE = "`python cli.py prepare --input chats.jsonl --target <name or folder> --output {}`"


@dataclass(frozen=True)
class TokenStore:
    """An open store. It holds paths and maps, no rows: cheap to copy and to send to DataLoader workers."""

    path: Path
    manifest: Manifest

    @classmethod
    def open(cls, path: str | Path) -> "TokenStore":
        """Raises FileNotFoundError where there is no store, ValueError where there is a damaged one."""
        folder = Path(path)
        if not folder.is_dir():
            raise FileNotFoundError(f"no token store at {folder}: make it with {_PREPARE.format(folder)}")
        if not (folder / FILE_NAME).is_file():
            raise FileNotFoundError(
                f"{folder} is not a complete token store (no {FILE_NAME}): "
                f"make one with {_PREPARE.format(folder)}"
            )
        store = cls(folder, Manifest.read_from(folder))
        store._require_whole()
        return store

    def split(self, name: str) -> Any:
        """The rows of "train" or "validation" as a Hugging Face Dataset in Arrow format; it may be empty."""
        if name not in SPLITS:
            raise ValueError(f"unknown split {name!r}; a token store has {' and '.join(SPLITS)}")
        return self._splits[name]

    def samples(self, split: str) -> Samples:
        """What the plan needs to know of each row, in the order of the store."""
        table = self.split(split).data
        lengths, supervised = (
            table.column(name).to_numpy().astype(np.int64) for name in ("length", "supervised")
        )
        return Samples(lengths=lengths, supervised=supervised)

    def row(self, split: str, index: SupportsIndex) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
        """(input_ids [S], loss_mask [S]) of one row, as copies of the caller's own."""
        found = self.split(split)[index.__index__()]
        ids, mask = (found[name].chunk(0).flatten().to_numpy() for name in ("input_ids", "loss_mask"))
        return ids.astype(np.int64), mask.astype(np.uint8)

    def place(self, split: str, index: SupportsIndex) -> str:
        """Where a row came from, as file:line (or row number)."""
        found = self.split(split)[index.__index__()]
        source, line = (found[name][0].as_py() for name in ("source", "line"))
        return f"{self.manifest.sources[source].path}:{line}"

    def require_matches(
        self, tokenizer: ChatTokenizer, *, vocab_rows: int, template: str | None = None
    ) -> None:
        """Refuse to train a target on tokens that were made for another. Raises ValueError.

        vocab_rows: rows of the target's embedding. template: text of the template the target is served with;
        None: the tokenizer's own.
        """
        again = "; prepare the chats again with --target of this run"
        if self.manifest.max_token_id >= vocab_rows:
            raise ValueError(
                f"wrong vocabulary: token store {self.path} holds id {self.manifest.max_token_id}, but the "
                f"target's embedding has {vocab_rows} rows{again}"
            )
        if (found := tokenizer_hash(tokenizer)) != self.manifest.tokenizer_hash:
            raise ValueError(
                f"other tokenizer: token store {self.path} was made with {self.manifest.tokenizer_hash}, "
                f"the target's is {found}{again}"
            )
        self._require_template(tokenizer, template or own_template(tokenizer))

    def _require_template(self, tokenizer: ChatTokenizer, template: str | None) -> None:
        expected = self.manifest.template_hash
        if expected is None:
            return  # ready tokens: no template of ours was used
        arguments = self.manifest.template_arguments
        found = None if template is None else template_hash(tokenizer, template, arguments)
        if found != expected:
            raise ValueError(
                f"other chat template: token store {self.path} was made with {expected}, the target's is "
                f"{found}; prepare the chats again, or name the template file that they were prepared with"
            )

    @cached_property
    def _splits(self) -> Any:
        return datasets.load_from_disk(str(self.path)).with_format("arrow")

    def _require_whole(self) -> None:
        try:
            found = {name: len(self._splits[name]) for name in SPLITS}
        except (OSError, KeyError, ValueError) as error:
            raise ValueError(
                f"token store {self.path} is damaged ({error}): "
                f"make it again with {_PREPARE.format(self.path)}"
            ) from error
        if found != self.manifest.kept:
            raise ValueError(
                f"token store {self.path} is damaged: it holds {found} rows, its manifest says "
                f"{self.manifest.kept}; make it again with {_PREPARE.format(self.path)}"
            )

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "manifest": self.manifest}  # the other process maps the files itself
