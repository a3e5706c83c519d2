"""The folder while it is written: killed, resumed, refused."""

import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from dflash_lightning.target.model import Target
from dflash_lightning.target.stored import folder as folder_module
from dflash_lightning.target.stored.writing import write_states
from tests.target.stored.toys import LENGTHS, ids_of, unfinished, write_toy
from tests.toy import toy_model


@pytest.fixture(scope="module")
def target():
    return Target(toy_model())


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


class Stop(Exception):
    pass


def stop_at(share):
    def on_progress(done, total):
        if done >= share * total:
            raise Stop

    return on_progress


def test_a_writer_that_was_stopped_goes_on_behind_its_last_whole_shard(tmp_path, target):
    write_toy(tmp_path / "never", target)
    with pytest.raises(Stop), unfinished(tmp_path / "toy") as folder:
        write_states(folder, target, ids_of, max_tokens=24, on_progress=stop_at(0.9))
    there = sorted(path.name for path in (tmp_path / "toy.partial").glob("shard-*"))
    assert there
    assert not (tmp_path / "toy").exists()
    first_time = (tmp_path / "toy.partial" / there[0]).stat().st_mtime_ns
    write_toy(tmp_path / "toy", target)
    assert (tmp_path / "toy" / there[0]).stat().st_mtime_ns == first_time
    assert contents(tmp_path / "toy") == contents(tmp_path / "never")
    assert not (tmp_path / "toy.partial").exists()


KILLED = """
import os, signal, sys
from pathlib import Path
from dflash_lightning.target.model import Target
from dflash_lightning.target.stored.writing import write_states
from tests.target.stored.toys import ids_of, unfinished
from tests.toy import toy_model

def kill(done, total):
    if done >= float(sys.argv[2]) * total:
        os.kill(os.getpid(), signal.SIGKILL)

with unfinished(Path(sys.argv[1])) as folder:
    write_states(folder, Target(toy_model()), ids_of, max_tokens=24, on_progress=kill)
"""


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.3, 0.8, 1.0])
def test_kill_9_leaves_whole_shards_and_no_lock(tmp_path, target, share):
    write_toy(tmp_path / "never", target)
    words = [sys.executable, "-c", KILLED, str(tmp_path / "toy"), str(share)]
    assert subprocess.run(words, cwd=Path(__file__).parents[3]).returncode == -signal.SIGKILL
    for path in (tmp_path / "toy.partial").glob("shard-*"):
        load_file(path)
    write_toy(tmp_path / "toy", target)
    assert contents(tmp_path / "toy") == contents(tmp_path / "never")


def test_a_shard_can_be_written_again(tmp_path, target):
    """As the documentation says: the folder gets its unfinished name back, the bad shard goes."""
    write_toy(tmp_path / "toy", target)
    before = contents(tmp_path / "toy")
    (tmp_path / "toy").rename(tmp_path / "toy.partial")
    (tmp_path / "toy.partial" / "shard-00001.safetensors").unlink()
    write_toy(tmp_path / "toy", target)
    assert contents(tmp_path / "toy") == before


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"taps": (1, 3)}, r"begun with other settings \(tapped layers: \[1, 3, 5\] there, \[1, 3\] here\)"),
        (
            {"final": False},
            r"begun with other settings \(final states \(for distillation\): yes there, no here\)",
        ),
        ({"store": "other"}, "token store .* s there, other here"),
        ({"shard_bytes": 30 * 1024}, "bytes of a shard: 20480 there, 30720 here"),
    ],
)
def test_an_unfinished_folder_goes_on_only_as_it_was_begun(tmp_path, changes, message):
    with unfinished(tmp_path / "toy"):
        pass
    with pytest.raises(ValueError, match=message), unfinished(tmp_path / "toy", **changes):
        pass


def test_two_writers_of_one_folder_are_refused(tmp_path):
    with (
        unfinished(tmp_path / "toy"),
        pytest.raises(ValueError, match=r"another process is writing .*toy.partial: wait for it"),
        unfinished(tmp_path / "toy"),
    ):
        pass
    with unfinished(tmp_path / "toy"):  # the first one is gone
        pass


def test_nothing_is_overwritten(tmp_path, target):
    write_toy(tmp_path / "toy", target)
    with pytest.raises(ValueError, match="toy already exists; delete it, or choose another folder"):
        write_toy(tmp_path / "toy", target)


def test_a_disk_too_small_is_refused_before_anything_runs(tmp_path, monkeypatch):
    free = sum(LENGTHS) * 1024 - 1
    monkeypatch.setattr(folder_module.shutil, "disk_usage", lambda path: SimpleNamespace(free=free))
    with (
        pytest.raises(OSError, match=r"need 0.0 GiB more at .*toy.partial, where 0.0 GiB are free"),
        unfinished(tmp_path / "toy"),
    ):
        pass


def test_a_failing_save_is_raised_and_what_was_whole_stays(tmp_path, target):
    (tmp_path / "toy.partial" / ".shard-00001.safetensors").mkdir(parents=True)  # no file can take the name
    with pytest.raises(OSError, match="could not be written"):
        write_toy(tmp_path / "toy", target)
    assert (tmp_path / "toy.partial" / "shard-00000.safetensors").exists()


def test_a_damaged_shard_is_found_when_the_index_is_made(tmp_path, target):
    with pytest.raises(Stop), unfinished(tmp_path / "toy") as folder:
        write_states(folder, target, ids_of, max_tokens=24, on_progress=stop_at(0.9))
    (tmp_path / "toy.partial" / "shard-00000.safetensors").write_bytes(b"")
    with pytest.raises(ValueError, match=r"shard-00000.safetensors is damaged .* delete it and run again"):
        write_toy(tmp_path / "toy", target)


def test_states_that_are_no_numbers_are_never_written(tmp_path):
    model, poisoned = toy_model(), int(ids_of(4).max())
    assert poisoned > 1  # the target's own check looks at tokens 0 and 1
    with torch.no_grad():
        model.get_input_embeddings().weight[poisoned] = float("nan")
    with (
        pytest.raises(ValueError, match=r"states of sample (\d) \(row \1\) are not finite in torch.float32"),
        unfinished(tmp_path / "toy") as folder,
    ):
        write_states(folder, Target(model), ids_of, max_tokens=24, place_of=lambda sample: f"row {sample}")
    assert not (tmp_path / "toy").exists()


def test_progress_counts_bytes_to_the_end(tmp_path, target):
    seen = []
    with unfinished(tmp_path / "toy") as folder:
        write_states(
            folder, target, ids_of, max_tokens=24, on_progress=lambda done, total: seen.append((done, total))
        )
    total = sum(LENGTHS) * 1024
    assert seen[0] == (0, total)
    assert seen[-1] == (total, total)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_padding_and_company_do_not_change_a_sample_beyond_last_digits(tmp_path, target):
    """Right padding under causal attention: what stands behind a token is not seen by it."""
    one, many = tmp_path / "one", tmp_path / "many"
    write_toy(one, target, max_tokens=1)
    write_toy(many, target, max_tokens=1000)
    for name in (path.name for path in one.glob("shard-*")):
        a, b = load_file(one / name), load_file(many / name)
        np.testing.assert_allclose(a["taps"], b["taps"], rtol=1e-4, atol=1e-5)
