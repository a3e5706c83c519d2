"""An offline W&B folder, as its own process writes it: also unfinished, and resumed under one id."""

import struct

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
        content.extend(struct.pack("<IHB", 0, len(part), kind) + part)
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
