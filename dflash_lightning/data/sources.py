"""What the user names as input -> files -> rows, in a fixed order and without parsing them.

in    files (.jsonl, .parquet), folders or globs of them, Hugging Face datasets saved on disk
out   Source (one file or dataset) and its Chunks of raw rows
law   the order is that of the arguments, then of the file names, then of the rows, numbered from 1;
      unfinished work of `regenerate` is no input, unless it is named itself
"""

import hashlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow.parquet as pq

JSON_LINES = (".jsonl", ".ndjson", ".json")
SUFFIXES = (*JSON_LINES, ".parquet")
UNFINISHED = ".unfinished"
"""End of the name of the folder in which `regenerate` keeps unfinished work, beside its output."""
FINISHED = f"{UNFINISHED}.finished"
"""The same, of one that is being deleted."""
NumberedRow = tuple[int, object, int]  # number, row, share of the file in bytes
CHUNK_ROWS = 128  # one unit of work: about 0.1 s, so that the bar moves and no worker waits long at the end


@dataclass(frozen=True)
class Source:
    """One file of rows, or the folder of one Hugging Face dataset."""

    path: Path

    @property
    def files(self) -> list[Path]:
        return sorted(self.path.glob("*.arrow")) if self.path.is_dir() else [self.path]

    @property
    def num_bytes(self) -> int:
        return sum(file.stat().st_size for file in self.files)

    def sha256(self) -> str:
        """Over the contents of its files, names left out: a moved file stays the same source."""
        whole = hashlib.sha256()
        for path in self.files:
            with path.open("rb") as file:
                whole.update(hashlib.file_digest(file, "sha256").digest())
        return whole.hexdigest()

    def chunks(self, index: int = 0) -> Iterator["Chunk"]:
        """All rows in order, tagged with the number of this source. Raises ValueError if there are none."""
        numbered = self._json_lines() if self.path.suffix in JSON_LINES else self._table_rows()
        while part := list(islice(numbered, CHUNK_ROWS)):
            numbers, rows, sizes = zip(*part, strict=True)
            yield Chunk(index, numbers, rows, sum(sizes))

    def _json_lines(self) -> Iterator[NumberedRow]:
        with self.path.open("rb") as file:
            _refuse_array(self.path, file)
            rows = ((n, line, len(line)) for n, line in enumerate(file, start=1) if line.strip())
            yield from _refuse_empty(self.path, rows)

    def _table_rows(self) -> Iterator[NumberedRow]:
        rows, count = _dataset_rows(self.path) if self.path.is_dir() else _parquet_rows(self.path)
        size = self.num_bytes // max(1, count)
        yield from _refuse_empty(self.path, ((n, row, size) for n, row in enumerate(rows, start=1)))


@dataclass(frozen=True)
class Chunk:
    """Some consecutive rows of one source."""

    source: int
    """Number of the source among the inputs, from 0."""
    numbers: Sequence[int]
    """Line (JSON Lines) or row number of each, from 1."""
    rows: Sequence[object]
    """JSON lines as bytes, unparsed; rows of tables as mappings."""
    num_bytes: int


def find_sources(inputs: Sequence[str], *, leave_out: Collection[Path] = ()) -> list[Source]:
    """Sources in the order of the inputs. Raises ValueError for one that names nothing to read.

    Args:
        leave_out: files that a folder or glob does not mean, such as the one that is to be written there.
    """
    apart = frozenset(path.resolve() for path in leave_out)
    return [Source(path) for text in inputs for path in _expand(text, apart)]


def require_distinct(sources: Sequence[Source]) -> list[Source]:
    """Raises ValueError for a file named twice: by folder and glob, or for training and validation."""
    seen: set[Path] = set()
    for source in sources:
        if (path := source.path.resolve()) in seen:
            raise ValueError(f"{source.path} is named twice among the inputs, so its rows would count twice")
        seen.add(path)
    return list(sources)


def _expand(text: str, apart: frozenset[Path]) -> list[Path]:
    path = Path(text).expanduser()
    if path.is_dir():
        return _folder(path, apart)
    if path.exists():
        return [_known(path)]
    if not set(text) & set("*?["):
        raise ValueError(f"input {text} does not exist; it can be a file, a folder, or a glob in quotes")
    named = next(n for n, part in enumerate(path.parts) if set(part) & set("*?["))
    found = sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor))))
    matches = [match for match in found if _is_meant(match, named, apart)]
    files = [
        file for match in matches for file in (_folder(match, apart) if match.is_dir() else [_known(match)])
    ]
    if not files:
        raise ValueError(f"no file matches the glob {text!r}")
    return files


def _is_meant(path: Path, named: int, apart: frozenset[Path]) -> bool:
    """The first `named` parts of the path are the user's own words."""
    work = any(part.endswith((UNFINISHED, FINISHED)) for part in path.parts[named:])
    return not work and path.resolve() not in apart


def _folder(path: Path, apart: frozenset[Path]) -> list[Path]:
    """The folder itself if it is a dataset saved on disk, else the files below it."""
    if (path / "state.json").exists() and (path / "dataset_info.json").exists():
        return [path]
    if (path / "dataset_dict.json").exists():
        splits = ", ".join(sorted(part.name for part in path.iterdir() if part.is_dir()))
        raise ValueError(f"{path} holds several datasets ({splits}): name one of them, such as {path}/train")
    below = (file for file in sorted(path.rglob("*")) if file.suffix in SUFFIXES and file.is_file())
    files = [file for file in below if _is_meant(file, len(path.parts), apart)]
    if not files:
        raise ValueError(f"folder {path} holds no {' or '.join(SUFFIXES)} file and is not a saved dataset")
    return files


def _known(path: Path) -> Path:
    if path.suffix not in SUFFIXES:
        raise ValueError(f"{path}: unknown kind of file; expected one of {', '.join(SUFFIXES)}")
    return path


def _refuse_array(path: Path, file: BinaryIO) -> None:
    if file.read(1) == b"[":
        raise ValueError(f"{path} is one JSON array; write one row a line: jq -c '.[]' {path} > rows.jsonl")
    file.seek(0)


def _refuse_empty(path: Path, rows: Iterator[NumberedRow]) -> Iterator[NumberedRow]:
    empty = True
    for row in rows:
        empty = False
        yield row
    if empty:
        raise ValueError(f"{path} is empty: it holds no row")


def _parquet_rows(path: Path) -> tuple[Iterator[dict[str, Any]], int]:
    try:
        file = pq.ParquetFile(path)
    except ValueError as error:  # pyarrow's ArrowInvalid is one
        raise ValueError(f"{path} is not a Parquet file: {error}") from error
    batches = file.iter_batches(batch_size=CHUNK_ROWS)
    return (row for batch in batches for row in batch.to_pylist()), file.metadata.num_rows


def _dataset_rows(path: Path) -> tuple[Iterator[dict[str, Any]], int]:
    import datasets  # takes a second, and only this kind of input needs it

    table = datasets.load_from_disk(str(path)).with_format("arrow")
    batches = table.iter(batch_size=CHUNK_ROWS)
    return (row for batch in batches for row in batch.to_pylist()), len(table)
