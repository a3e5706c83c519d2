"""Each row exactly once, in order, however it went."""

import pytest

from dflash_lightning.regenerate.run import HOPELESS_ROWS
from tests.data.chats import row
from tests.regenerate.answering import expected, question, read_rows, run, write_rows


def test_every_row_has_a_status_and_the_output_holds_the_usable_ones(chat_server, tmp_path):
    rows = [question("a"), {"text": "x"}, row("b", "old"), question("c [length]"), {"input_ids": [1]}]
    written, status, summary = run(tmp_path, rows, chat_server.url)
    assert written == [expected(rows[0], 0), expected(rows[2], 2)]
    assert [line["status"] for line in status] == ["ok", "skipped", "ok", "truncated", "skipped"]
    assert [line["place"].rpartition(":")[2] for line in status] == ["1", "2", "3", "4", "5"]
    assert all("chat" not in line for line in status)
    shown = summary.table().splitlines()
    assert shown[-1].split() == ["rows", "5"]
    assert sum(int(line.split()[-1]) for line in shown[:-2]) == 5


def test_prompts_and_turns_of_benchmarks_are_answered_as_chats(chat_server, tmp_path):
    rows = [{"prompt": "a", "set": "x"}, {"turns": ["b", "c"]}, {"prompt": question("d")["messages"]}]
    written, status, _ = run(tmp_path, rows, chat_server.url)
    assert [line["status"] for line in status] == ["ok"] * 3
    asked = [question("a"), question("b"), question("d")]
    assert [one["messages"] for one in written] == [expected(o, n)["messages"] for n, o in enumerate(asked)]
    assert [{name: one[name] for name in given} for one, given in zip(written, rows, strict=True)] == rows


def test_lines_that_are_no_json_are_counted(chat_server, tmp_path):
    path = write_rows(tmp_path / "in.jsonl", [question("a")])
    path.write_text(path.read_text() + "{broken\n")
    from dflash_lightning.regenerate.client import ChatClient
    from dflash_lightning.regenerate.config import RegenerateConfig
    from dflash_lightning.regenerate.run import regenerate
    from dflash_lightning.regenerate.server import ServerTarget
    from tests.regenerate.answering import settings_for

    config = RegenerateConfig(input=(str(path),), output=str(tmp_path / "out.jsonl"))
    settings = settings_for(chat_server.url)
    backend = ServerTarget(ChatClient(settings), config, settings, model="toy")
    progress = []
    summary = regenerate(config, {}, lambda: backend, on_progress=lambda *facts: progress.append(facts))
    assert summary.reasons == {("skipped", "broken JSON"): 1}
    assert progress[0] == (0, 2, 0)


def test_text_of_every_kind_comes_back_unchanged(chat_server, tmp_path):
    rows = [question(text) for text in ("é 你好 🙂", "a\u2028b\x85c\u2029", "half \ud800", 'q"\\\n')]
    written, _, _ = run(tmp_path, rows, chat_server.url)  # read by splitlines, which ends a line at \u2028
    assert written == [expected(given, n) for n, given in enumerate(rows)]
    assert "你好" in (tmp_path / "out.jsonl").read_text(encoding="utf-8")


def test_truncated_answers_are_kept_on_request(chat_server, tmp_path):
    rows = [question("k [length]")]
    written, status, summary = run(tmp_path, rows, chat_server.url, truncated="keep")
    assert (len(written), status[0]["status"], summary.rows["truncated"]) == (1, "truncated", 1)


def test_a_finished_output_is_not_touched_again(chat_server, tmp_path):
    run(tmp_path, [question("a")], chat_server.url)
    before = (tmp_path / "out.jsonl").read_bytes()
    with pytest.raises(ValueError, match="already exists; choose another --output, or replace it with"):
        run(tmp_path, [question("b")], chat_server.url)
    assert (tmp_path / "out.jsonl").read_bytes() == before
    written, _, _ = run(tmp_path, [question("b")], chat_server.url, overwrite=True)
    assert written == [expected(question("b"), 0)]


def test_too_many_failed_rows_publish_nothing_and_can_be_done_again(chat_server, tmp_path):
    rows = [question("e"), question("again [400]")]
    with pytest.raises(
        ValueError, match=r"1 of 2 rows \(50.0%\) failed, more than the limit of 5.0%:"
    ) as error:
        run(tmp_path, rows, chat_server.url)
    assert "in.jsonl:2: http://" in str(error.value)
    assert not (tmp_path / "out.jsonl").exists()
    with pytest.raises(ValueError, match=r"run again with --retry-failed, or raise --max-failed$"):
        run(tmp_path, rows, chat_server.url)
    written, _, summary = run(tmp_path, rows, chat_server.url, retry_failed=True)
    assert written == [expected(given, n) for n, given in enumerate(rows)]
    assert summary.rows == {"ok": 2}


def test_unfinished_work_is_not_continued_with_other_settings_or_another_input(chat_server, tmp_path):
    rows = [question("f"), question("never [400:0]")]
    with pytest.raises(ValueError, match="failed, more than"):
        run(tmp_path, rows, chat_server.url)
    with pytest.raises(ValueError, match=r"temperature: 0.0 before, 0.7 now. Give the former settings"):
        run(tmp_path, rows, chat_server.url, temperature=0.7)
    with pytest.raises(ValueError, match="model: toy before, other now"):
        run(tmp_path, rows, chat_server.url, model="other")
    with pytest.raises(ValueError, match="unfinished work with other settings: input: [0-9a-f]{32} before"):
        run(tmp_path, rows[:1], chat_server.url)


def test_a_run_without_hope_ends_early_and_goes_on_when_its_cause_is_gone(chat_server, tmp_path):
    rows = [question(f"hope {n} [400]") for n in range(HOPELESS_ROWS + 5)]
    message = (
        f"none of the first {HOPELESS_ROWS} rows can be used; .* is failed: the server refuses .*"
        "once the cause is gone, run again with --retry-failed$"
    )
    with pytest.raises(ValueError, match=message):
        run(tmp_path, rows, chat_server.url)
    written, _, _ = run(tmp_path, rows, chat_server.url, retry_failed=True, max_failed=0.5)
    assert len(written) >= HOPELESS_ROWS


def test_a_run_without_hope_that_no_retry_can_help_says_what_to_delete(chat_server, tmp_path):
    rows = [{"text": "x"}] * (HOPELESS_ROWS + 5)
    message = r"is skipped: no messages.*To begin anew with .* delete .*/out.jsonl.unfinished$"
    with pytest.raises(ValueError, match=message):
        run(tmp_path, rows, chat_server.url)


def test_nothing_usable_is_no_output(chat_server, tmp_path):
    message = (
        r"none of the 1 rows can be used:\n  1 x skipped: no messages(.|\n)*delete .*out.jsonl.unfinished$"
    )
    with pytest.raises(ValueError, match=message):
        run(tmp_path, [{"text": "x"}], chat_server.url)
    assert not (tmp_path / "out.jsonl").exists()


def test_a_kill_between_the_last_answer_and_the_end_costs_nothing(chat_server, tmp_path):
    """The output is there, the folder of unfinished work as well: it is published once more, unchanged."""
    rows = [question("between [400]"), question("g")]
    with pytest.raises(ValueError, match="failed, more than"):
        run(tmp_path, rows, chat_server.url)
    write_rows(tmp_path / "out.jsonl", [{"stale": 1}])
    written, _, _ = run(tmp_path, rows, chat_server.url, max_failed=0.9)
    assert written == read_rows(tmp_path / "out.jsonl") == [expected(rows[1], 1)]
