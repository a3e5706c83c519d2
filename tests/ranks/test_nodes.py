"""Several nodes, each started by a torchrun of its own, as docs/launch.md says (gloo on loopback)."""

import os
import random
import re
import shutil
import signal
import time
from importlib.metadata import version

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.ranks.nodes import Nodes
from tests.ranks.pool import environment
from tests.ranks.runs import Fit
from tests.ranks.test_signals import AHEAD, stopped_at
from tests.runs import make_store

pytestmark = [pytest.mark.ranks, pytest.mark.slow]

REPEAT = int(os.environ.get("DFLASH_REPEAT", "1"))
LENGTHS = np.random.default_rng(5).integers(6, 33, 61).tolist()
DELAY = 0.05


@pytest.fixture(scope="module")
def store(tmp_path_factory, toy_target):
    return make_store(tmp_path_factory.mktemp("store"), toy_target, LENGTHS, held_out=[10, 30, 20, 15])


@pytest.mark.parametrize("devices", [1, 2], ids=["world 2", "world 4"])
def test_two_nodes_train_like_one_process(devices, tmp_path, toy_target, store):
    """Equal windows: one process accumulates what two nodes share out."""
    world = 2 * devices
    with Nodes(
        tmp_path / "nodes", toy_target, store, devices=devices, trainer={"accumulate_grad_batches": 1}
    ) as nodes:
        assert nodes.finish_all() == [0, 0], nodes.output
    with Fit(
        tmp_path / "one", "alone", toy_target, store, words=[f"--trainer.accumulate_grad_batches={world}"]
    ) as one:
        assert one.finish() == 0, one.output[-3000:]
    assert len(nodes.rows) == len(one.rows) > 5
    for ours, theirs in zip(nodes.rows, one.rows, strict=True):
        for name in (
            "step",
            "train/step",
            "train/loss",
            "train/tau",
            "train/accuracy",
            "val/loss",
            "val/tau",
        ):
            assert (name in ours) == (name in theirs)
            if name in ours:
                assert float(ours[name]) == pytest.approx(float(theirs[name]), rel=1e-4), name


@pytest.mark.parametrize(("rank", "words"), [(0, []), (1, []), (1, AHEAD)], ids=["0", "1", "1 ahead"])
def test_a_killed_rank_ends_all_nodes(rank, words, tmp_path, toy_target, store):
    with Nodes(tmp_path / "run", toy_target, store, delay=DELAY, words={0: words, 1: words}) as nodes:
        pid = nodes.wait_for(rank, 3)
        os.kill(pid, signal.SIGKILL)
        codes = nodes.finish_all()
    assert 0 not in codes
    assert "PrefetchBalance: the target runs inside the step" not in nodes.output
    assert f"Signal {int(signal.SIGKILL)} (SIGKILL) received by PID {pid}" in nodes.output_of(rank)
    assert re.search(r"Connection (closed|reset) by (peer|remote)|peer", nodes.output_of(1 - rank))


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("attempt", range(REPEAT))
def test_sigterm_to_one_rank_stops_all_nodes_after_the_same_step(attempt, rank, tmp_path, toy_target, store):
    chance = random.Random(f"nodes {attempt} {rank}")
    with Nodes(tmp_path / "run", toy_target, store, delay=DELAY) as nodes:
        pid = nodes.wait_for(rank, chance.randint(1, 12))
        time.sleep(chance.random() * 2 * DELAY)
        os.kill(pid, signal.SIGTERM)
        codes = nodes.finish_all()
    assert 0 not in codes
    steps = stopped_at(nodes)
    content = torch.load(nodes.checkpoints[0], weights_only=True)
    assert content["DFlashDataModule"]["position"]["steps"] == steps
    assert "exitcode  : 143" in nodes.output


@pytest.mark.parametrize(
    ("word", "difference"),
    [
        ("--model.lr=0.5", "model.lr is 0.003 on rank 0 and 0.5 on rank 1"),
        ("--data.plan.max_rows=3", "data.plan.max_rows is 4 on rank 0 and 3 on rank 1"),
        ("--trainer.max_epochs=7", "trainer.max_epochs is 2 on rank 0 and 7 on rank 1"),
    ],
)
def test_a_node_with_another_config_is_told_by_every_node(word, difference, tmp_path, toy_target, store):
    with Nodes(tmp_path / "run", toy_target, store, words={1: [word]}) as nodes:
        assert 0 not in nodes.finish_all()
    for node in (0, 1):
        assert f"fit: ranks have different settings: {difference}" in nodes.output_of(node)
        assert "belongs into the environment: ${oc.env:NAME}" in nodes.output_of(node)


def test_a_node_with_other_data_is_told_by_every_node(tmp_path, toy_target):
    """Each node has a disk of its own, whose path comes from the environment."""
    for node, lengths in enumerate((LENGTHS, [*LENGTHS[:-1], LENGTHS[-1] + 1])):
        make_store(tmp_path / f"disk{node}", toy_target, lengths)
    disks = {node: {"NODE_DISK": str(tmp_path / f"disk{node}" / "store")} for node in (0, 1)}
    with Nodes(tmp_path / "run", toy_target, "${oc.env:NODE_DISK}", variables=disks) as nodes:
        assert 0 not in nodes.finish_all()
    for node in (0, 1):
        assert re.search(
            r"fit: ranks disagree about the plan: \w{24} on rank 0, \w{24} on rank 1 \(store: \w+ on rank 0",
            nodes.output_of(node),
        ), nodes.output


def test_a_node_with_another_target_is_told_by_every_node(tmp_path, toy_target, store):
    """Same shape and tokenizer, other weights: a fine-tuned copy on one node's disk."""
    shutil.copytree(toy_target, tmp_path / "disk0" / "target")
    shutil.copytree(toy_target, tmp_path / "disk1" / "target")
    weights = tmp_path / "disk1" / "target" / "model.safetensors"
    tensors = load_file(weights)
    save_file({name: tensor + 0.1 for name, tensor in tensors.items()}, weights, {"format": "pt"})
    disks = {node: {"NODE_DISK": str(tmp_path / f"disk{node}")} for node in (0, 1)}
    with Nodes(tmp_path / "run", "${oc.env:NODE_DISK}/target", store, variables=disks) as nodes:
        assert 0 not in nodes.finish_all()
    difference = r"digest is \w{24} on rank 0 and \w{24} on rank 1\. Give every node the same weights"
    for node in (0, 1):
        told = nodes.output_of(node)
        assert re.search(f"fit: ranks have different targets: {difference}", told), nodes.output


def test_a_node_with_another_version_is_told_by_every_node(tmp_path, toy_target, store):
    """What is installed on node 1 says that it is another version; nothing else differs."""
    installed = tmp_path / "site" / "lightning-99.0.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: lightning\nVersion: 99.0\n")
    path = os.pathsep.join(filter(None, [str(installed.parent), environment().get("PYTHONPATH")]))
    with Nodes(tmp_path / "run", toy_target, store, variables={1: {"PYTHONPATH": path}}) as nodes:
        assert 0 not in nodes.finish_all()
    difference = rf"lightning is {re.escape(version('lightning'))} on rank 0 and 99\.0 on rank 1"
    for node in (0, 1):
        told = nodes.output_of(node)
        assert re.search(f"fit: ranks have different versions: {difference}\\. Install the same", told), told


def test_a_dry_run_tells_where_every_rank_sits(tmp_path, toy_target, store):
    words = {node: ["--dry_run=true"] for node in (0, 1)}
    with Nodes(tmp_path / "run", toy_target, store, words=words) as nodes:
        assert nodes.finish_all() == [0, 0], nodes.output
    told = nodes.output_of(0)
    assert re.search(r"rank 0 .*drafter on cpu, target on the same device\n  rank 1 .*drafter on cpu", told)
    assert "dry run passed; nothing was written" in told
    assert nodes.output.count("memory of a rank, estimated") == 1
    assert nodes.checkpoints == []
    assert not (nodes.folder / "logs").exists()
