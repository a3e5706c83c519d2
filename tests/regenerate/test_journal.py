"""Unfinished work survives a kill at every byte."""

import fcntl
import json
import shutil

import pytest

from dflash_lightning.regenerate.chats import Record
from dflash_lightning.regenerate.journal import RECORDS, open_journal

IDENTITY = {"seed": 1, "model": "toy"}


def record(row, status="ok", **more):
    chat = {"messages": [{"role": "user", "content": f"é {row}"}]} if status == "ok" else None
    return Record(row=row, place=f"f:{row}", status=status, chat=chat, **more)


def started(folder, rows=3, **options):
    return open_journal(folder, IDENTITY, rows, **options)


def test_records_come_back_in_the_order_of_the_rows(tmp_path):
    with started(tmp_path / "w") as journal:
        for row in (2, 0, 1):
            journal.append(record(row))
        assert [r.row for r in journal.records()] == [0, 1, 2]
    with started(tmp_path / "w") as journal:
        assert list(journal.records()) == [record(row) for row in range(3)]
        assert (journal.done, journal.usable) == (3, 3)


def test_a_kill_at_any_byte_costs_at_most_the_record_that_was_being_written(tmp_path):
    with started(tmp_path / "whole") as journal:
        for row in range(3):
            journal.append(record(row))
    content = (tmp_path / "whole" / RECORDS).read_bytes()
    ends = [i + 1 for i, byte in enumerate(content) if byte == ord("\n")]
    for cut in range(len(content) + 1):
        folder = tmp_path / str(cut)
        with started(folder):
            pass
        (folder / RECORDS).write_bytes(content[:cut])
        with started(folder) as journal:
            assert journal.done == sum(end <= cut for end in ends)
            for row in range(journal.done, 3):
                journal.append(record(row))
        assert (folder / RECORDS).read_bytes() == content


@pytest.mark.parametrize("rest", [b"\0" * 50, b"\0" * 50 + b"\n", b'{"row": 7}', b"[]\n", b"\xff\n\n"])
def test_what_a_power_cut_leaves_is_cut_off(rest, tmp_path):
    with started(tmp_path) as journal:
        journal.append(record(0))
    good = (tmp_path / RECORDS).read_bytes()
    (tmp_path / RECORDS).write_bytes(good + rest)
    with started(tmp_path) as journal:
        assert journal.done == 1
    assert (tmp_path / RECORDS).read_bytes() == good


def test_damage_costs_its_own_row_and_none_after_it(tmp_path):
    with started(tmp_path, 4) as journal:
        for row in range(4):
            journal.append(record(row))
    lines = (tmp_path / RECORDS).read_bytes().splitlines(keepends=True)
    lines[1] = b"\0" * (len(lines[1]) - 1) + b"\n"
    (tmp_path / RECORDS).write_bytes(b"".join(lines))
    with started(tmp_path, 4) as journal:
        assert [row in journal for row in range(4)] == [True, False, True, True]
        journal.append(record(1))
        assert list(journal.records()) == [record(row) for row in range(4)]
    with started(tmp_path, 4) as journal:
        assert journal.done == 4


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda facts: {**{k: v for k, v in facts.items() if k != "status"}, "state": "ok"}, "it has state"),
        (lambda facts: {**facts, "more": 1, "extra": 2}, "it has extra, more"),
        (lambda facts: {k: v for k, v in facts.items() if k not in ("row", "place")}, "it has no place, row"),
        (lambda facts: {**facts, "row": 3}, "its row is 3, and the input has 3 rows"),
        (lambda facts: {**facts, "row": -1}, "its row is -1, and the input has 3 rows"),
        (lambda facts: {}, "it has no place, row, status"),
    ],
)
@pytest.mark.parametrize("line", [1, 3])
def test_records_of_another_version_are_refused_and_kept(line, change, reason, tmp_path):
    with started(tmp_path) as journal:
        for row in range(3):
            journal.append(record(row))
    lines = (tmp_path / RECORDS).read_text().splitlines()
    lines[line - 1] = json.dumps(change(json.loads(lines[line - 1])))
    content = "".join(f"{each}\n" for each in lines).encode()
    (tmp_path / RECORDS).write_bytes(content)
    message = (
        rf"records.jsonl, line {line}: this version cannot go on with it, {reason}\. Finish the work with "
        "the version that began it, or delete .* to begin anew"
    )
    with pytest.raises(ValueError, match=message), started(tmp_path):
        pass
    assert (tmp_path / RECORDS).read_bytes() == content


def test_a_field_that_a_later_version_adds_keeps_its_default(tmp_path):
    with started(tmp_path) as journal:
        journal.append(record(0, tokens=5))
    facts = json.loads((tmp_path / RECORDS).read_bytes())
    del facts["tokens"]
    (tmp_path / RECORDS).write_text(json.dumps(facts) + "\n")
    with started(tmp_path) as journal:
        assert journal.read(0) == record(0)


def test_a_row_is_never_done_twice(tmp_path):
    with started(tmp_path) as journal:
        journal.append(record(1))
        with pytest.raises(ValueError, match=r"row 1 \(f:1\) is done already"):
            journal.append(record(1))


def test_work_that_is_not_finished_is_not_read_as_if_it_were(tmp_path):
    with started(tmp_path) as journal:
        journal.append(record(0))
        with pytest.raises(ValueError, match="row 1 has no record"):
            list(journal.records())


def test_other_settings_are_refused_with_both_values(tmp_path):
    with started(tmp_path) as journal:
        journal.append(record(0))
    message = (
        "model: toy before, None now; seed: 1 before, 2 now; top_p: None before, 0.5 now. Give the former"
    )
    with (
        pytest.raises(ValueError, match=message),
        open_journal(tmp_path, {"seed": 2, "top_p": 0.5}, 3),
    ):
        pass


def test_work_without_a_record_may_begin_with_other_settings(tmp_path):
    with started(tmp_path):
        pass  # the server was not there, or its name was wrong
    with open_journal(tmp_path, {"seed": 2}, 3) as journal:
        journal.append(record(0))
    with pytest.raises(ValueError, match="seed: 2 before, 1 now"), started(tmp_path):
        pass


def target(digest, name):
    return {"target": {"digest": digest, "name": name}}


def test_another_target_under_the_same_name_is_refused_and_the_same_one_elsewhere_is_not(tmp_path):
    with open_journal(tmp_path, target("aa", "mine"), 3) as journal:
        journal.append(record(0))
    with open_journal(tmp_path, target("aa", "moved/mine"), 3) as journal:
        assert journal.done == 1
    message = "target: {'digest': 'aa', 'name': 'mine'} before, {'digest': 'bb', 'name': 'mine'} now. Give"
    with pytest.raises(ValueError, match=message), open_journal(tmp_path, target("bb", "mine"), 3):
        pass
    with pytest.raises(ValueError, match="target: {'digest': 'aa'.*} before, mine now"):
        open_journal(tmp_path, {"target": "mine"}, 3).__enter__()


def test_a_lock_in_a_folder_that_is_gone_locks_nothing(tmp_path, monkeypatch):
    """Another process finishes between the opening and the locking of the file."""
    folder = tmp_path / "work"
    flock = fcntl.flock

    def late(file, how):
        shutil.rmtree(folder)
        flock(file, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with pytest.raises(ValueError, match="another process has just finished the work in .*work: its output"):
        started(folder).__enter__()


def test_one_process_at_a_time(tmp_path):
    with (
        started(tmp_path),
        pytest.raises(ValueError, match="another process is at work in"),
        started(tmp_path),
    ):
        pass
    with started(tmp_path):
        pass  # it left


def test_failed_rows_are_done_again_on_request_only(tmp_path):
    with started(tmp_path, 2) as journal:
        journal.append(record(0, "failed"))
        journal.append(record(1))
    with started(tmp_path, 2) as journal:
        assert 0 in journal
    with started(tmp_path, 2, retry_failed=True) as journal:
        assert 0 not in journal
        journal.append(record(0))
    for retry in (False, True):
        with started(tmp_path, 2, retry_failed=retry) as journal:
            assert (journal.done, journal.usable) == (2, 2)
            assert [r.status for r in journal.records()] == ["ok", "ok"]
