import json
import os
from multiprocessing import get_context

import pytest

from dflash_lightning.data.prepare import prepare
from dflash_lightning.data.prepare_config import PrepareConfig
from dflash_lightning.data.report import HOPELESS_ROWS, TooManySkipped
from dflash_lightning.data.sources import CHUNK_ROWS
from dflash_lightning.data.store import TokenStore
from tests.data import chats
from tests.data.chats import row
from tests.data.test_sources import write_json, write_parquet

CHATS = [row(f"Question {n}", f"Answer {n}" * (n % 7 + 1)) for n in range(3 * CHUNK_ROWS)]
UNANSWERED = {"messages": [{"role": "user", "content": "Hello?"}]}


def run(folder, rows=CHATS, template=chats.CHATML, *, on_progress=lambda done, total: None, **settings):
    """(store, report) of the rows, written to a file of their own."""
    path = write_json(folder / "chats.jsonl", rows)
    values = {"input": (str(path),), "output": str(folder / "store"), **settings}
    _, report = prepare(PrepareConfig(**values), chats.tokenizer(template), on_progress=on_progress)
    return TokenStore.open(values["output"]), report


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def contents(store):
    return {
        name: [tuple(map(tuple, store.row(name, i))) for i in range(len(store.split(name)))]
        for name in ("train", "validation")
    }


def test_kept_and_skipped_by_reason_are_all_rows(tmp_path):
    rows = [*CHATS[:30], UNANSWERED, *CHATS[30:60], {"text": "x"}, UNANSWERED, row("Hello", "Hi" * 100)]
    store, report = run(tmp_path, rows, max_skipped=0.1, max_length=150, validation_share=0.2)
    assert report.skipped == {
        "no assistant turn": 2,
        "no messages, conversations, or input_ids + loss_mask": 1,
        "longer than --max-length": 1,
    }
    kept = store.manifest.kept
    assert 0 < kept["validation"] < kept["train"]
    assert sum(kept.values()) + sum(store.manifest.skipped.values()) == store.manifest.read == len(rows)
    assert report.examples["no assistant turn"] == [f"{tmp_path}/chats.jsonl:{n}" for n in (31, 63)]
    assert store.manifest.sources[0].rows == len(rows)
    assert store.manifest.sources[0].kept == 60


@pytest.mark.parametrize("template", [chats.CHATML, chats.MARKED])
def test_half_a_surrogate_pair_is_counted(template, tmp_path):
    rows = [*CHATS[:20], row("half \ud83d", "Hi"), row("Hello", "\udc00")]
    store, report = run(tmp_path, rows, template, max_skipped=0.2, validation_share=0.0)
    assert report.skipped == {"the chat holds half of a surrogate pair, which is no character": 2}
    assert store.manifest.kept["train"] == 20


def test_the_table_adds_up(tmp_path):
    _, report = run(tmp_path, [*CHATS[:40], UNANSWERED], validation_share=0.0)
    assert report.table().splitlines() == [
        "kept for train                       40",
        "skipped: no assistant turn            1",
        "---------------------------------------",
        "read                                 41",
    ]


@pytest.mark.slow  # each worker imports transformers
@pytest.mark.ranks
def test_workers_and_input_format_change_no_byte(tmp_path):
    alone, _ = run(tmp_path, validation_share=0.1)
    together, _ = run(tmp_path, validation_share=0.1, workers=2, output=str(tmp_path / "together"))
    table = str(write_parquet(tmp_path / "chats.parquet", CHATS))
    parquet, _ = run(tmp_path, validation_share=0.1, input=(table,), output=str(tmp_path / "parquet"))
    assert contents(alone) == contents(together) == contents(parquet)
    assert alone.manifest.digest == together.manifest.digest == parquet.manifest.digest
    assert alone.manifest == together.manifest  # sources and counts too


def test_equal_rows_stay_together_and_the_splits_are_disjoint(tmp_path):
    store, _ = run(tmp_path, [*CHATS, *CHATS[::3]], validation_share=0.3)
    parts = contents(store)
    assert len(parts["validation"]) > 50
    assert not set(parts["train"]) & set(parts["validation"])


def test_rows_that_become_equal_by_truncation_stay_together(tmp_path):
    rows = [row("Hello", "Hi there" + tail) for tail in "abcdefghij"]
    store, report = run(tmp_path, rows, max_length=32, truncate=True, validation_share=0.5)
    assert report.truncated == len(rows) == store.manifest.truncated
    assert sorted(store.manifest.kept.values()) == [0, len(rows)]


def test_validation_files_are_held_out_as_a_whole(tmp_path):
    held_out = write_json(tmp_path / "held_out.jsonl", CHATS[:5])
    store, report = run(tmp_path, CHATS, validation_input=(str(held_out),), validation_share=0.5)
    assert store.manifest.kept == {"train": len(CHATS) - 5, "validation": 5}
    assert report.skipped == {"also among the validation inputs": 5}
    assert store.manifest.validation_share == 0.0


def test_too_many_skipped_rows_stop_the_job_with_reasons_and_places(tmp_path):
    rows = [*CHATS[:18], UNANSWERED, {"text": "x"}]
    with pytest.raises(TooManySkipped) as caught:
        run(tmp_path, rows, max_skipped=0.05)
    assert str(caught.value) == (
        "2 of 20 rows (10.0%) would be skipped, more than the limit of 5.0%:\n"
        f"  1 x no assistant turn\n      {tmp_path}/chats.jsonl:19\n"
        "  1 x no messages, conversations, or input_ids + loss_mask\n"
        f"      {tmp_path}/chats.jsonl:20: columns: text\n"
        "Repair the input, or raise --max-skipped"
    )
    assert names_in(tmp_path) == ["chats.jsonl"]
    run(tmp_path, rows, max_skipped=0.1)  # at the limit is within it


def test_input_without_a_usable_row_stops_early(tmp_path):
    read = []
    with pytest.raises(TooManySkipped, match=f"none of the first {8 * CHUNK_ROWS} rows can be used"):
        run(
            tmp_path,
            [UNANSWERED] * 20 * CHUNK_ROWS,
            max_skipped=0.99,
            on_progress=lambda done, total: read.append(done / total),
        )
    assert HOPELESS_ROWS <= 8 * CHUNK_ROWS
    assert max(read) < 0.5
    with pytest.raises(
        TooManySkipped, match="none of the 2 rows can be used:\n  2 x no assistant turn"
    ) as caught:
        run(tmp_path, [UNANSWERED] * 2, max_skipped=0.99)
    assert "`python cli.py regenerate` lets the target write one" in str(caught.value)
    with pytest.raises(TooManySkipped, match="none of the 2 rows can be used") as caught:
        run(tmp_path, [{"text": "x"}] * 2, max_skipped=0.99)
    assert "regenerate" not in str(caught.value)


def test_tokens_of_another_target_stop_the_job(tmp_path):
    rows = [{"input_ids": [5, 49151, 7], "loss_mask": [0, 1, 1]}] * 4
    with pytest.raises(
        TooManySkipped, match="outside the target's vocabulary\n.*chats.jsonl:1: id 49151, vocab"
    ):
        run(tmp_path, rows)


def test_progress_reaches_the_end(tmp_path):
    told = []
    run(tmp_path, on_progress=lambda done, total: told.append((done, total)))
    assert told == sorted(told)
    assert len(told) == 3
    assert told[-1][0] == told[-1][1] == (tmp_path / "chats.jsonl").stat().st_size


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (
            None,
            "the tokenizer has no chat template, .*--chat-template FILE, or rows with input_ids",
        ),
        (chats.NO_ASSISTANT, "the chat template cannot be used: .*the generation prompt is not how"),
        (chats.NO_GENERATION_PROMPT, "the chat template has no generation prompt"),
        (chats.NO_STOP, "the chat template cannot be used: .*does not end with a stop token .*--stop-token"),
    ],
)
def test_a_template_that_suits_no_chat_is_one_error(template, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        run(tmp_path, template=template)
    assert names_in(tmp_path) == ["chats.jsonl"]


def test_a_template_file_replaces_the_tokenizers_own(tmp_path):
    path = write_json(tmp_path / "chats.jsonl", CHATS[:3])
    config = PrepareConfig(input=(str(path),), output=str(tmp_path / "store"), template=chats.MARKED)
    manifest, _ = prepare(config, chats.tokenizer(None))
    assert manifest.template == chats.MARKED


def test_ready_tokens_need_no_template(tmp_path):
    store, _ = run(tmp_path, [{"input_ids": [5, 6, 7], "loss_mask": [0, 1, 1]}], None)
    assert store.manifest.template_hash is None


def test_named_stop_tokens_end_an_answer(tmp_path):
    path = write_json(tmp_path / "chats.jsonl", CHATS[:3])
    other_eos = chats.tokenizer(chats.CHATML)
    other_eos.eos_token = "<|endoftext|>"  # as in base models: the template's end of turn is another token
    config = {"input": (str(path),), "output": str(tmp_path / "store")}
    with pytest.raises(ValueError, match="does not end with a stop token"):
        prepare(PrepareConfig(**config), other_eos)
    manifest, _ = prepare(PrepareConfig(**config, stop_tokens=(chats.END,)), other_eos)
    assert manifest.stop_ids == (256, 258)


def test_overwriting_replaces_the_whole_store(tmp_path):
    run(tmp_path, CHATS)
    store, _ = run(tmp_path, CHATS[:7], overwrite=True, validation_share=0.0)
    assert len(store.split("train")) == 7
    assert names_in(tmp_path) == ["chats.jsonl", "store"]


@pytest.mark.slow
@pytest.mark.ranks
def test_a_killed_run_leaves_nothing_that_opens(tmp_path):
    """Killed as late as possible: all rows are written, only the end is missing."""
    child = get_context("spawn").Process(
        target=run, args=(tmp_path,), kwargs={"on_progress": kill_at_the_end}
    )
    child.start()
    child.join()
    assert child.exitcode == -9
    assert any("partial" in name for name in names_in(tmp_path))
    with pytest.raises(FileNotFoundError, match="no token store at"):
        TokenStore.open(tmp_path / "store")
    store, _ = run(tmp_path)
    assert sum(store.manifest.kept.values()) == len(CHATS)


def kill_at_the_end(done, total):
    if done == total:
        os.kill(os.getpid(), 9)


def test_an_interrupted_run_leaves_nothing(tmp_path):
    def interrupt(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, on_progress=interrupt)
    assert names_in(tmp_path) == ["chats.jsonl"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"input": ()}, "no input: name at least one file"),
        ({"max_length": 1}, "max_length must be at least 2, .* got 1"),
        ({"truncate": True}, "truncate needs max_length"),
        ({"validation_share": 1.01}, "validation_share must be between 0 and 1, got 1.01"),
        ({"max_skipped": -0.1}, "max_skipped must be at least 0 and below 1, got -0.1"),
        ({"workers": 0}, "workers must be at least 1, got 0"),
    ],
)
def test_nonsense_is_refused_before_any_work(settings, message):
    with pytest.raises(ValueError, match=message):
        PrepareConfig(**{"input": ("a",), "output": "b", **settings})


def test_the_manifest_is_readable_json(tmp_path):
    run(tmp_path, CHATS[:3])
    manifest = json.loads((tmp_path / "store" / "manifest.json").read_text())
    assert manifest["sources"][0]["path"] == str(tmp_path / "chats.jsonl")
    assert len(manifest["sources"][0]["sha256"]) == 64
