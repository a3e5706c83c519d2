"""S3Checkpoint with the drafter split by FSDP2: each rank stores its part, all of them or none."""

import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from dflash_lightning.checkpoint.listing import list_manifests
from dflash_lightning.checkpoint.resuming.address import local_copy
from dflash_lightning.checkpoint.stores.local import LocalStore
from dflash_lightning.checkpoint.stores.settings import StoreSettings
from dflash_lightning.main import main
from tests.runs import make_store

pytestmark = [pytest.mark.ranks, pytest.mark.slow]

LENGTHS = np.random.default_rng(5).integers(6, 33, 61).tolist()


@pytest.fixture(scope="module")
def run(tmp_path_factory, toy_target, two_ranks):
    store = make_store(tmp_path_factory.mktemp("store"), toy_target, LENGTHS, held_out=[10, 20])

    def on_both(root, uri, **options):
        arguments = {"root": str(root), "target": str(toy_target), "store": str(store), "uri": str(uri)}
        return two_ranks.run("tests.ranks.checkpoint_jobs:fit", **arguments, **{"sharded": True, **options})

    return on_both


@pytest.fixture(scope="module")
def whole(tmp_path_factory, run):
    """Never stopped; its checkpoints, and what its ranks did."""
    folder = tmp_path_factory.mktemp("whole")
    return folder / "kept", run(folder, folder / "kept", keep_last=-1, monitor="val/tau")


def manifests_in(folder):
    return list(reversed(list_manifests(LocalStore(folder), "").manifests))


def assert_goes_on_as(rest, theirs, rel):
    for ours, whole in zip(rest, theirs, strict=True):
        assert ours["error"] is None
        assert len(ours["steps"]) == len(whole["steps"]) - 4
        for step, record in zip(ours["steps"], whole["steps"][4:], strict=True):
            assert step["step"] == record["step"]
            for name in ("norm", "train/loss", "train/tau", "lr"):
                assert step[name] == pytest.approx(record[name], rel=rel), name


def test_every_checkpoint_is_one_manifest_of_two_shards(whole):
    folder, ranks = whole
    assert [rank["error"] for rank in ranks] == [None, None]
    manifests = manifests_in(folder)
    assert manifests
    for manifest in manifests:
        keys = [f"data/{manifest.name}/rank={rank}.ckpt" for rank in (0, 1)]
        assert [file.key for file in manifest.files] == keys
    assert manifests[-1].step == len(ranks[0]["steps"])
    assert len({manifest.run_id for manifest in manifests}) == 1
    assert "best" in {manifest.kind for manifest in manifests}


def test_resumed_by_address_equals_never_stopped(whole, tmp_path, run):
    folder, ranks = whole
    rest = run(tmp_path, tmp_path / "other", resume=f"{folder}/step=4")
    for ours, theirs in zip(rest, ranks, strict=True):
        assert ours["error"] is None
        assert ours["steps"] == theirs["steps"][4:]
        assert ours["batches"] == theirs["batches"][8:]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_shard_that_has_rotted_is_an_error_on_both(rank, whole, tmp_path, run):
    folder, copy = whole[0], tmp_path / "copy"
    shutil.copytree(folder, copy)
    (shard,) = copy.glob(f"data/step=4-*/rank={rank}.ckpt")
    damaged = bytearray(shard.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    shard.write_bytes(damaged)
    ours = run(tmp_path, tmp_path / "other", resume=f"{copy}/step=4")
    assert all("crc32" in rank["error"] for rank in ours)
    assert all(rank["steps"] == [] for rank in ours)


def test_export_and_validate_read_shards(whole, tmp_path, toy_target):
    folder, _ = whole
    words = ["--checkpoint", f"{folder}/step=4", "--output", str(tmp_path / "drafter")]
    assert main(["export", *words]) == 0
    with local_copy(f"{folder}/step=4", StoreSettings()) as file:
        state = torch.load(file, weights_only=True)
    exported = load_file(tmp_path / "drafter" / "model.safetensors")
    assert exported["fc.weight"].shape == state["state_dict"]["drafter.fc.weight"].shape
    assert "shards" not in state


def test_writers_in_processes_of_their_own(tmp_path, run):
    slow_start = {"timeout": 300}  # each writer imports torch
    ours = run(tmp_path, tmp_path / "kept", every_n_steps=3, process=True, max_epochs=1, **slow_start)
    assert [rank["error"] for rank in ours] == [None, None]
    last = manifests_in(tmp_path / "kept")[-1]
    assert (last.step, len(last.files)) == (len(ours[0]["steps"]), 2)


def test_a_rank_that_is_slow_to_store_makes_both_save_later_and_the_same_steps(tmp_path, run):
    ours = run(tmp_path, tmp_path / "kept", every_n_steps=1, behind=(2, 1, "slow"), keep_last=-1)
    assert [rank["error"] for rank in ours] == [None, None]
    manifests = manifests_in(tmp_path / "kept")
    assert {len(manifest.files) for manifest in manifests} == {2}
    assert 3 <= len(manifests) < len(ours[0]["steps"])
    assert manifests[-1].step == len(ours[0]["steps"])


def test_a_split_checkpoint_goes_on_whole_and_a_whole_one_split(whole, tmp_path, run):
    folder, ranks = whole
    ddp = run(tmp_path / "a", tmp_path / "ddp", resume=f"{folder}/step=4", sharded=False, keep_last=-1)
    assert_goes_on_as(ddp, ranks, rel=1e-4)
    last = len(ranks[0]["steps"]) - 4
    again = run(tmp_path / "b", tmp_path / "back", resume=f"{tmp_path}/ddp/step={last}")
    for ours, theirs in zip(again, ddp, strict=True):
        assert ours["error"] is None
        tail = theirs["steps"][last - 4 :]
        assert [step["train/loss"] for step in ours["steps"]] == pytest.approx(
            [step["train/loss"] for step in tail], rel=1e-4
        )


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_cannot_store_its_shard_ends_both_at_the_same_step(rank, tmp_path, run):
    ours = run(tmp_path, tmp_path / "kept", behind=(3, rank, "refuse"))
    assert len({len(rank["steps"]) for rank in ours}) == 1
    assert all("can no longer be stored" in rank["error"] for rank in ours)
    assert "may not write" in ours[rank]["error"]
    assert f"rank {rank}: StoreError: may not write" in ours[1 - rank]["error"]
    assert [m.step for m in manifests_in(tmp_path / "kept")] == [2]
    assert len([*(tmp_path / "kept" / "data").rglob("*.ckpt")]) == 2


def test_on_request_both_go_on(tmp_path, run):
    ours = run(tmp_path, tmp_path / "kept", behind=(3, 1, "refuse"), on_error="warn", max_epochs=1)
    assert [rank["error"] for rank in ours] == [None, None]
    assert [m.step for m in manifests_in(tmp_path / "kept")] == [2]


def test_a_signalled_rank_leaves_a_durable_checkpoint(tmp_path, run):
    ours = run(tmp_path, tmp_path / "kept", every_n_steps=100, behind=(3, 1, "signal"))
    assert [rank["error"] for rank in ours] == ["StoppedBySignal: 143"] * 2
    assert [(m.step, m.kind, len(m.files)) for m in manifests_in(tmp_path / "kept")] == [(4, "signal", 2)]
