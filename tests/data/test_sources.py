import json

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dflash_lightning.data.sources import CHUNK_ROWS, find_sources, require_distinct

ROWS = [{"n": n} for n in range(CHUNK_ROWS + 3)]  # two chunks


def write_json(path, rows=ROWS):
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_parquet(path, rows=ROWS):
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def write_dataset(path, rows=ROWS):
    datasets.disable_progress_bars()
    datasets.Dataset.from_list(rows).save_to_disk(path)
    return path


def names(inputs):
    return [source.path.name for source in find_sources([str(each) for each in inputs])]


def numbered(source):
    """(number, row) of every row."""
    for chunk in source.chunks(5):
        assert chunk.source == 5
        assert len(chunk.rows) <= CHUNK_ROWS
        for number, row in zip(chunk.numbers, chunk.rows, strict=True):
            yield number, json.loads(row) if isinstance(row, bytes) else row


@pytest.mark.parametrize(
    ("write", "name"), [(write_json, "a.jsonl"), (write_parquet, "a.parquet"), (write_dataset, "saved")]
)
def test_every_kind_gives_its_rows_in_order_with_numbers_from_1(write, name, tmp_path):
    (source,) = find_sources([str(write(tmp_path / name))])
    assert list(numbered(source)) == list(enumerate(ROWS, start=1))


def test_progress_in_bytes_adds_up_to_the_file(tmp_path):
    (source,) = find_sources([str(write_json(tmp_path / "a.jsonl"))])
    assert sum(chunk.num_bytes for chunk in source.chunks()) == source.num_bytes


def test_blank_lines_are_no_rows_but_count_as_lines(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"n": 1}\n\n  \n{"n": 4}')
    (source,) = find_sources([str(path)])
    assert list(numbered(source)) == [(1, {"n": 1}), (4, {"n": 4})]


def test_a_row_from_a_table_may_hold_lists_of_structs(tmp_path):
    rows = [{"messages": [{"role": "user", "content": "Hello"}], "input_ids": None}]
    (source,) = find_sources([str(write_parquet(tmp_path / "a.parquet", rows))])
    assert [row for _, row in numbered(source)] == rows


def test_folders_and_globs_are_read_in_the_order_of_names(tmp_path, monkeypatch):
    for name in ("b.jsonl", "a.jsonl", "c.txt", "below/d.jsonl"):
        write_json(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    assert names(["."]) == names([tmp_path]) == ["a.jsonl", "b.jsonl", "d.jsonl"]
    assert names(["b.jsonl", "a.jsonl"]) == ["b.jsonl", "a.jsonl"]  # as the user says
    assert names(["*.jsonl"]) == names([tmp_path / "*.jsonl"]) == ["a.jsonl", "b.jsonl"]
    assert names(["**/*.jsonl"]) == ["a.jsonl", "b.jsonl", "d.jsonl"]
    assert names(["bel*"]) == ["d.jsonl"]


def test_the_hash_of_a_source_is_that_of_its_content(tmp_path):
    first, moved, other = (write_json(tmp_path / f"{name}.jsonl", rows) for name, rows in
                           [("a", ROWS), ("b", ROWS), ("c", ROWS[1:])])  # fmt: skip
    hashes = [source.sha256() for source in find_sources([str(path) for path in (first, moved, other)])]
    assert hashes[0] == hashes[1] != hashes[2]
    (saved,) = find_sources([str(write_dataset(tmp_path / "saved"))])
    assert len(saved.sha256()) == 64


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gone.jsonl", "input gone.jsonl does not exist; it can be a file, a folder, or a glob"),
        ("x*.jsonl", r"no file matches the glob 'x\*.jsonl'"),
        ("empty", "folder empty holds no .jsonl or .* file and is not a saved dataset"),
        ("notes.txt", "notes.txt: unknown kind of file; expected one of .jsonl"),
        ("*.txt", "notes.txt: unknown kind of file"),
        (
            "several",
            r"several holds several datasets \(test, train\): name one of them, such as several/train",
        ),
    ],
)
def test_inputs_that_name_nothing_to_read(text, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").touch()
    for split in ("train", "test"):
        (tmp_path / "several" / split).mkdir(parents=True)
    (tmp_path / "several" / "dataset_dict.json").write_text("{}")
    with pytest.raises(ValueError, match=message):
        find_sources([text])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b"", "a.jsonl is empty: it holds no row"),
        ("a.jsonl", b"\n\n", "a.jsonl is empty"),
        ("a.json", b'[{"n": 1}]', r"a.json is one JSON array; write one row a line: jq -c '.\[\]'"),
        ("a.parquet", b"PAR0", "a.parquet is not a Parquet file"),
    ],
)
def test_files_without_rows(name, content, message, tmp_path):
    (tmp_path / name).write_bytes(content)
    (source,) = find_sources([str(tmp_path / name)])
    with pytest.raises(ValueError, match=message):
        list(source.chunks())


def test_a_parquet_file_without_rows_is_empty(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"messages": pa.array([], pa.string())}), path)
    with pytest.raises(ValueError, match="a.parquet is empty"):
        list(find_sources([str(path)])[0].chunks())


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("", ["a.jsonl", "b.jsonl"]),
        ("*", ["a.jsonl", "b.jsonl"]),
        ("**/*.jsonl", ["a.jsonl", "b.jsonl"]),
        ("mine.jsonl", ["mine.jsonl"]),  # named itself
        ("mine.jsonl.unfinished", ["records.jsonl"]),
        ("mine.jsonl.unfinished/*", ["records.jsonl"]),
    ],
)
def test_unfinished_work_and_files_to_leave_out_are_no_inputs_unless_named(given, found, tmp_path):
    folder = tmp_path / "chats.unfinished"  # the user's own name for it
    for name in ("a.jsonl", "b.jsonl", "mine.jsonl", "mine.jsonl.unfinished/records.jsonl"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_json(folder / name)
    (folder / ".x.jsonl.unfinished.finished").mkdir()
    write_json(folder / ".x.jsonl.unfinished.finished" / "records.jsonl")
    sources = find_sources([str(folder / given)], leave_out=[folder / "mine.jsonl"])
    assert [source.path.name for source in sources] == found


def test_a_file_counts_once(tmp_path):
    path = str(write_json(tmp_path / "a.jsonl"))
    with pytest.raises(ValueError, match="a.jsonl is named twice among the inputs"):
        require_distinct(find_sources([path, str(tmp_path)]))
