"""Where the output stands: beside the inputs, among them, and there already."""

from datetime import datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dflash_lightning.regenerate.client import ChatClient
from dflash_lightning.regenerate.config import RegenerateConfig
from dflash_lightning.regenerate.run import regenerate
from dflash_lightning.regenerate.server import ServerTarget
from tests.regenerate.answering import expected, question, read_rows, settings_for, write_rows

NEVER = question("never [400:0]")  # fails, so that nothing is published


@pytest.fixture
def answer(chat_server):
    """Runs `regenerate` with this input and output."""

    def run(given, output, *, before=lambda: None, **changes):
        config = RegenerateConfig(input=tuple(map(str, given)), output=str(output), **changes)
        settings = settings_for(chat_server.url)

        def start():
            before()
            return ServerTarget(ChatClient(settings), config, settings, model="toy")

        return regenerate(config, {"model": "toy"}, start)

    return run


def answered(rows):
    return [expected(given, number) for number, given in enumerate(rows)]


@pytest.mark.parametrize("pattern", ["", "*.jsonl", "*", "**/*.jsonl", "../in*"])
@pytest.mark.parametrize("place", ["out.jsonl", "deeper/out.jsonl"])
def test_an_output_inside_of_the_input_folder_can_be_gone_on_with(pattern, place, answer, tmp_path):
    folder = tmp_path / "in"
    (folder / "deeper").mkdir(parents=True)
    rows = [question(f"{pattern} {place} {text}") for text in ("a", "[400]", "b", "c")]
    write_rows(folder / "a.jsonl", rows[:2])
    write_rows(folder / "b.jsonl", rows[2:3])
    write_rows(folder / "deeper" / "c.jsonl", rows[3:])
    if pattern == "*.jsonl":
        rows.pop()
    given, output = [folder / pattern], folder / place
    with pytest.raises(ValueError, match="failed, more than the limit"):
        answer(given, output)
    for name in (".out.jsonl.part", ".out.jsonl.status.part"):  # a kill while it was written
        output.with_name(name).write_bytes(b"{}\n")
    remains = output.with_name(".out.jsonl.unfinished.finished")  # a kill while it was cleared up
    remains.mkdir()
    write_rows(remains / "records.jsonl", [{"row": 0}])
    answer(given, output, retry_failed=True)
    assert read_rows(output) == answered(rows)
    answer(given, output, overwrite=True)  # the old output is not answered once more
    assert read_rows(output) == answered(rows)


def test_unfinished_work_of_another_output_is_no_input(answer, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    write_rows(folder / "a.jsonl", [question("other"), NEVER])
    with pytest.raises(ValueError, match="failed, more than"):
        answer([folder], folder / "first.jsonl")
    summary = answer([folder], tmp_path / "second.jsonl", max_failed=0.9)
    assert summary.read == 2


@pytest.mark.parametrize("overwrite", [False, True])
def test_an_input_is_never_overwritten(overwrite, answer, tmp_path):
    path = write_rows(tmp_path / "a.jsonl", [question("kept")])
    with pytest.raises(
        ValueError, match="a.jsonl (is an input as well: it would be lost|already exists); choose"
    ):
        answer([path], path, overwrite=overwrite)
    assert read_rows(path) == [question("kept")]
    assert [each.name for each in tmp_path.iterdir()] == ["a.jsonl"]


def refuse():
    raise OSError("no device")


def test_a_failed_run_that_may_overwrite_does_not_let_the_next_one_overwrite(answer, tmp_path):
    given = write_rows(tmp_path / "in.jsonl", [question("a")])
    output = write_rows(tmp_path / "out.jsonl", [{"precious": 1}])
    with pytest.raises(OSError, match="no device"):
        answer([given], output, before=refuse, overwrite=True)
    with pytest.raises(ValueError, match="out.jsonl already exists; choose another --output, or replace it"):
        answer([given], output)
    assert read_rows(output) == [{"precious": 1}]
    answer([given], output, overwrite=True)
    assert read_rows(output) == answered([question("a")])


def test_two_runs_that_begin_together_write_one_output(answer, tmp_path, monkeypatch):
    """The first publishes while the second still reads its input."""
    import dflash_lightning.regenerate.run as module

    given, output = write_rows(tmp_path / "in.jsonl", [question("together")]), tmp_path / "out.jsonl"
    find = module.find_sources

    def slow(*words, **more):
        monkeypatch.undo()
        answer([given], output)
        output.write_text(output.read_text() + "\n")  # to know it again
        return find(*words, **more)

    monkeypatch.setattr(module, "find_sources", slow)
    with pytest.raises(ValueError, match="out.jsonl already exists; choose another --output, or replace it"):
        answer([given], output)
    assert output.read_text().endswith("\n\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl", "out.jsonl", "out.jsonl.status"]


def test_columns_of_a_table_are_kept_and_bytes_are_refused(answer, tmp_path):
    when = datetime(2024, 1, 31, 12, 30)
    rows = [
        {**question(f"table {n}"), "n": n, "when": when, "day": when.date(), "image": None} for n in range(2)
    ]
    rows.append({**question("with bytes"), "n": 2, "when": when, "day": when.date(), "image": b"\x89PNG"})
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "in.parquet")
    summary = answer([tmp_path / "in.parquet"], tmp_path / "out.jsonl")
    kept = {"when": "2024-01-31 12:30:00", "day": "2024-01-31", "image": None}
    whole = [{**row, **kept} for row in answered(rows[:2])]
    assert read_rows(tmp_path / "out.jsonl") == whole
    assert summary.reasons == {("skipped", "a column holds bytes, which JSON cannot"): 1}
    assert "in.parquet:3: image: leave it out of the input" in summary.places()
