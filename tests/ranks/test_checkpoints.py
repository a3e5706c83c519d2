"""S3Checkpoint on two ranks: rank 0 saves alone, all of them resume and stop together."""

import numpy as np
import pytest

from dflash_lightning.checkpoint.listing import list_manifests
from dflash_lightning.checkpoint.stores.local import LocalStore
from tests.runs import make_store

pytestmark = [pytest.mark.ranks, pytest.mark.slow]

LENGTHS = np.random.default_rng(5).integers(6, 33, 61).tolist()


@pytest.fixture(scope="module")
def run(tmp_path_factory, toy_target, two_ranks):
    store = make_store(tmp_path_factory.mktemp("store"), toy_target, LENGTHS, held_out=[10, 20])

    def on_both(root, uri, **options):
        arguments = {"root": str(root), "target": str(toy_target), "store": str(store), "uri": str(uri)}
        return two_ranks.run("tests.ranks.checkpoint_jobs:fit", **arguments, **options)

    return on_both


def kept(folder):
    return [(m.step, m.kind) for m in reversed(list_manifests(LocalStore(folder), "").manifests)]


def test_saved_and_resumed_equals_never_stopped(tmp_path, run):
    folder = tmp_path / "kept"
    whole = run(tmp_path / "a", folder, keep_last=-1)
    assert [rank["error"] for rank in whole] == [None, None]
    rest = run(tmp_path / "b", tmp_path / "other", resume=f"{folder}/step=4")
    for ours, theirs in zip(rest, whole, strict=True):
        assert ours["steps"] == theirs["steps"][4:]
        assert ours["batches"] == theirs["batches"][8:]
    assert list_manifests(LocalStore(folder), "").manifests[0].facts["world_size"] == 2


def test_both_start_fresh_where_nothing_is_there_yet(tmp_path, run):
    folder = tmp_path / "kept"
    command = {"resume": f"{folder}/last", "if_missing": "fresh", "keep_last": -1}
    first = run(tmp_path / "a", folder, **command)
    assert [rank["error"] for rank in first] == [None, None]
    assert first[0]["steps"]
    again = run(tmp_path / "b", folder, **command)
    assert [(rank["steps"], rank["error"]) for rank in again] == [([], None)] * 2


@pytest.mark.parametrize("rank", [0, 1])
def test_one_signalled_rank_leaves_a_durable_checkpoint(rank, tmp_path, run):
    ours = run(tmp_path, tmp_path / "kept", every_n_steps=100, behind=(3, rank, "signal"))
    assert [rank["error"] for rank in ours] == ["StoppedBySignal: 143"] * 2
    assert kept(tmp_path / "kept") == [(4, "signal")]


def test_a_store_that_refuses_ends_both_at_the_same_step(tmp_path, run):
    ours = run(tmp_path, tmp_path / "kept", behind=(3, 0, "refuse"))
    assert len({len(rank["steps"]) for rank in ours}) == 1
    assert "may not write" in ours[0]["error"]
    assert ours[1]["error"] == "CheckpointsLost: checkpoints can no longer be stored: rank 0 says why"
    assert kept(tmp_path / "kept") == [(2, "step")]


def test_what_cannot_be_found_is_an_error_on_both(tmp_path, run):
    ours = run(tmp_path, tmp_path / "kept", resume=str(tmp_path / "nothing"))
    assert "there is no checkpoint" in ours[0]["error"]
    assert "rank 0 cannot fetch" in ours[1]["error"]
    assert "there is no checkpoint" in ours[1]["error"]


@pytest.mark.parametrize(("sharded", "rank"), [(False, 0), (True, 0), (True, 1)])
@pytest.mark.parametrize("resumed", [False, True])
def test_a_rank_without_memory_for_snapshots_ends_both(resumed, sharded, rank, tmp_path, run):
    """At the first step, or at the start where the state is as large as it will be."""
    resume = None
    if resumed:
        run(tmp_path / "a", tmp_path / "from", sharded=sharded)
        resume = str(tmp_path / "from")
    ours = run(
        tmp_path / "b",
        tmp_path / "kept",
        sharded=sharded,
        behind=(1, rank, "no memory"),
        resume=resume,
        max_epochs=3,
    )
    said = "CheckpointsLost: the first snapshot of the training state has no place: "
    reasons = ["another rank says why"] * 2
    reasons[rank] = "only 7 bytes of memory are available"
    assert [one["error"] for one in ours] == [said + reason for reason in reasons]
    assert [len(one["steps"]) for one in ours] == [0 if resumed else 1] * 2
    assert not (tmp_path / "kept" / "owner.json").exists()  # given back
    assert kept(tmp_path / "kept") == []
