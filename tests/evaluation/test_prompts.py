import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dflash_lightning.evaluation.prompts import read_prompts

QUESTION = {"role": "user", "content": "Is it?"}


def write(folder, *rows):
    path = folder / "prompts.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.mark.parametrize(
    ("row", "asked"),
    [
        ({"messages": [QUESTION]}, [QUESTION]),
        ({"messages": [QUESTION, {"role": "assistant", "content": "Yes."}]}, [QUESTION]),  # its own is wanted
        ({"conversations": [{"from": "human", "value": "Is it?"}]}, [QUESTION]),
        ({"prompt": "Is it?"}, [QUESTION]),
        ({"prompt": [QUESTION]}, [QUESTION]),
        ({"turns": ["Is it?", "And now?"]}, [QUESTION]),
        (
            {"messages": [QUESTION, {"role": "assistant", "content": "Yes."}, QUESTION]},
            [QUESTION, {"role": "assistant", "content": "Yes."}, QUESTION],
        ),
    ],
)
def test_what_is_asked(tmp_path, row, asked):
    (prompt,) = read_prompts([write(tmp_path, row)])
    assert prompt.messages == asked
    assert prompt.category == "other"


def test_categories_and_a_limit(tmp_path):
    rows = [{"prompt": "a", "category": "maths", "kind": "x"}, {"prompt": "b", "kind": "y"}, {"prompt": "c"}]
    path = write(tmp_path, *rows)
    assert [p.category for p in read_prompts([path])] == ["maths", "other", "other"]
    assert [p.category for p in read_prompts([path], category="kind", limit=2)] == ["x", "y"]
    assert [p.category for p in read_prompts([path], category="category")] == ["maths", "other", "other"]
    assert read_prompts([path])[2].place == f"{path}:3"


@pytest.mark.parametrize(
    ("named", "category"),
    [
        ("maths", "maths"),
        (0, "0"),
        (1, "1"),
        (False, "False"),
        ("all", "all"),
        (" long\nanswers ", "long answers"),  # one row of a table
        ("", "other"),
        (" ", "other"),
        (None, "other"),
    ],
)
def test_the_name_of_a_category(tmp_path, named, category):
    (prompt,) = read_prompts([write(tmp_path, {"prompt": "a", "category": named})])
    assert prompt.category == category


def test_parquet_too(tmp_path):
    pq.write_table(pa.Table.from_pylist([{"prompt": "Is it?", "category": "b"}]), tmp_path / "p.parquet")
    (prompt,) = read_prompts([str(tmp_path / "p.parquet")])
    assert (prompt.messages, prompt.category) == ([QUESTION], "b")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty: it holds no row"),
        ('{"prompt"', r"prompts.jsonl:1: the row is not JSON"),
        (
            '{"text": "Is it?"}',
            r"prompts.jsonl:1: no messages, conversations, prompt or turns \(columns: text\)",
        ),
        ('{"messages": [{"role": "pope", "content": "?"}]}', "unknown role"),
    ],
)
def test_a_row_that_cannot_be_used_is_an_error(tmp_path, text, message):
    (tmp_path / "prompts.jsonl").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_prompts([str(tmp_path / "prompts.jsonl")])


def test_other_mistakes(tmp_path):
    with pytest.raises(ValueError, match=r"none\.jsonl does not exist"):
        read_prompts([str(tmp_path / "none.jsonl")])
    with pytest.raises(ValueError, match="at least one prompt must be asked, got a limit of 0"):
        read_prompts([write(tmp_path, {"prompt": "a"})], limit=0)


@pytest.mark.parametrize("named", ["nope", "category", ""])
def test_a_column_that_was_asked_for_and_is_nowhere_is_refused(tmp_path, named):
    path = write(tmp_path, {"prompt": "a", "kind": "x"}, {"prompt": "b", "set": None})
    with pytest.raises(
        ValueError,
        match=f"--category {named}: none of the 2 prompts has such a column; there are prompt, kind, set$",
    ):
        read_prompts([path], category=named)
    with pytest.raises(ValueError, match="none of the 1 prompts has such a column; there are prompt, kind$"):
        read_prompts([path], category="set", limit=1)
    assert [p.category for p in read_prompts([path], category="set")] == [
        "other",
        "other",
    ]  # named, and empty
