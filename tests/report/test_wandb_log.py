"""An offline W&B folder, as its own process writes it: also unfinished, and resumed under one id."""

import struct
import zlib

import pytest

from dflash_lightning.report.read import read_run

pytest.importorskip("wandb")
BLOCK = 32_768


def write_wandb(folder, rows, *, finished=True):
    """A run file of history records; wandb's log format: records in blocks, split where a block ends."""
    from wandb.proto.wandb_internal_pb2 import Record

    content = bytearray(b":W&B\0\0\0")
    for row in rows:
        record = Record()
        for name, value in row.items():
            item = record.history.item.add()
            item.nested_key.append(name)
            item.value_json = str(value)
        append(content, record.SerializeToString())
    if finished:
        record = Record()
        record.exit.exit_code = 0
        append(content, record.SerializeToString())
    folder.mkdir(parents=True)
    (folder / f"run-{folder.name.split('-')[-1]}.wandb").write_bytes(content)


def append(content, payload):
    first = True
    while True:
        left = BLOCK - len(content) % BLOCK
        if left < 7:
            content.extend(bytes(left))
            continue
        part, payload = payload[: left - 7], payload[left - 7 :]
        kind = {(True, True): 1, (True, False): 2, (False, False): 3, (False, True): 4}[first, not payload]
        checksum = zlib.crc32(part, zlib.crc32(bytes([kind])))
        content.extend(struct.pack("<IHB", checksum, len(part), kind) + part)
        first = False
        if not payload:
            return


def rows(first, last, loss=2.0):
    return [
        {"train/step": s, "train/loss": loss, "trainer/global_step": s - 1, "_timestamp": 1e9 + s}
        for s in range(first, last + 1)
    ]


@pytest.mark.parametrize("where", ["", "wandb", "wandb/offline-run-20260101_000000-abc"])
def test_reads_steps_values_and_times(tmp_path, where):
    validation = {"val/tau": 2.5, "trainer/global_step": 499}
    write_wandb(tmp_path / "wandb/offline-run-20260101_000000-abc", [*rows(1, 900), validation])
    run = read_run(tmp_path / where)
    assert run.steps.tolist() == list(range(1, 901))  # over several blocks
    assert run.times[0] == 1e9 + 1
    assert run.val_steps.tolist() == [500]
    assert run.complete


def test_a_resumed_run_is_joined_by_its_id(tmp_path):
    write_wandb(tmp_path / "wandb/offline-run-20260101_000000-abc", rows(1, 60), finished=False)
    write_wandb(tmp_path / "wandb/offline-run-20260102_000000-abc", rows(51, 100, loss=1.0))
    write_wandb(tmp_path / "wandb/offline-run-20251231_000000-old", rows(1, 10))
    run = read_run(tmp_path)
    assert run.steps.tolist() == list(range(1, 101))
    assert run.loss[49:51].tolist() == [2.0, 1.0]
    assert any(note.startswith("1 other W&B runs lie beside") for note in run.notes)


def test_an_unfinished_file_is_read_to_its_last_whole_record(tmp_path):
    folder = tmp_path / "offline-run-20260101_000000-abc"
    write_wandb(folder, rows(1, 60), finished=False)
    file = folder / "run-abc.wandb"
    file.write_bytes(file.read_bytes()[:-5])
    run = read_run(folder)
    assert run.steps.tolist() == list(range(1, 60))
    assert not run.complete
    assert run.notes == ["run-abc.wandb has no end: the run was killed, or still writes"]


@pytest.mark.parametrize("damage", [bytes, lambda size: b"\xa5" * size], ids=["zeros", "junk"])
@pytest.mark.parametrize("size", [1, 5000])
@pytest.mark.parametrize("at", [BLOCK // 2, BLOCK - 3, 2 * BLOCK + 100])
def test_behind_a_damaged_place_reading_goes_on(tmp_path, at, size, damage):
    """At most two blocks are lost with it, and no row is changed."""
    folder = tmp_path / "offline-run-20260101_000000-abc"
    write_wandb(folder, rows(1, 3000))
    file = folder / "run-abc.wandb"
    whole = file.read_bytes()
    assert len(whole) > 5 * BLOCK
    file.write_bytes(whole[:at] + damage(size) + whole[at + size :])
    run = read_run(folder)
    lost = set(range(1, 3001)) - set(run.steps.tolist())
    per_block = 3000 * BLOCK / len(whole)
    assert 0 < len(lost) <= 2 * per_block + 2
    assert {1, 3000} <= set(run.steps.tolist())
    assert (run.loss == 2.0).all()
    assert (run.times == 1e9 + run.steps).all()
    assert any("are damaged, and rows that stood there are left out" in note for note in run.notes)


def test_space_that_nothing_was_written_to_is_no_damage(tmp_path):
    folder = tmp_path / "offline-run-20260101_000000-abc"
    write_wandb(folder, rows(1, 60))
    file = folder / "run-abc.wandb"
    file.write_bytes(file.read_bytes() + bytes(4096))
    run = read_run(folder)
    assert run.complete
    assert run.notes == []


EVALUATION = [{"val/tau": 2.5, "trainer/global_step": 0}, {"test/tau": 2.5, "trainer/global_step": 0}]


@pytest.mark.parametrize("run_id", ["abc", "new"], ids=["under the run's id", "under an id of its own"])
@pytest.mark.parametrize("later", [[], EVALUATION, None], ids=["no rows", "evaluation", "empty file"])
@pytest.mark.parametrize("resumed", [False, True])
def test_an_evaluation_or_a_failed_start_is_no_part_of_the_run(tmp_path, run_id, later, resumed):
    """Before a resumed part and behind it."""
    write_wandb(tmp_path / "wandb/offline-run-20260101_000000-abc", rows(1, 60))
    folders = [tmp_path / f"wandb/offline-run-2026010{day}_000000-{run_id}" for day in (2, 4)]
    for folder in folders:
        write_wandb(folder, later or [])
        if later is None:
            (folder / f"run-{run_id}.wandb").write_bytes(b"")
    if resumed:
        write_wandb(tmp_path / "wandb/offline-run-20260103_000000-abc", rows(51, 100, loss=1.0))
    run = read_run(tmp_path)
    assert run.steps.tolist() == list(range(1, 101 if resumed else 61))
    assert run.loss[0] == 2.0
    assert run.loss[-1] == (1.0 if resumed else 2.0)
    assert not len(run.val_steps)
    assert f"left out 2 logs without training: {', '.join(folder.name for folder in folders)}" in run.notes
