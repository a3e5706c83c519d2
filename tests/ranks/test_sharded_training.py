"""FSDP2 on two ranks trains as DDP does: each rank holds half of every tensor, the numbers are the same."""

import re

import numpy as np
import pytest
import torch

from tests.runs import make_store

pytestmark = [pytest.mark.ranks, pytest.mark.slow]

LENGTHS = np.random.default_rng(5).integers(6, 33, 61).tolist()
HELD_OUT = [32] * 9 + [10, 20, 8]
"""An odd number of batches: the ranks validate unequal numbers of them."""


@pytest.fixture(scope="module")
def store(tmp_path_factory, toy_target):
    return str(make_store(tmp_path_factory.mktemp("store"), toy_target, LENGTHS, held_out=HELD_OUT))


@pytest.fixture(scope="module")
def run(tmp_path_factory, toy_target, two_ranks, store):
    def on_both(**options):
        root = str(tmp_path_factory.mktemp("run"))
        return two_ranks.run(
            "tests.ranks.sharded_jobs:fit", root=root, target=str(toy_target), store=store, **options
        )

    return on_both


def test_losses_norms_and_weights_are_those_of_ddp(run):
    theirs, ours = run(sharded=False), run(sharded=True)
    for split, plain in zip(ours, theirs, strict=True):
        assert [batch["ids"] for batch in split["batches"]] == [batch["ids"] for batch in plain["batches"]]
        assert len(split["steps"]) == len(plain["steps"]) > 8
        for step, record in zip(split["steps"], plain["steps"], strict=True):
            assert step["weight"] == record["weight"]
            assert step["optimizer_steps"] == record["optimizer_steps"]
            for name in ("norm", "clip_factor", "train/loss", "train/tau", "train/accuracy"):
                assert step[name] == pytest.approx(record[name], rel=1e-4), name
        assert split["validation"] == pytest.approx(plain["validation"], rel=1e-4)
        for name, value in split["weights"].items():
            torch.testing.assert_close(value, plain["weights"][name], rtol=1e-3, atol=1e-4)
        assert split["held"] == plain["held"] // 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"callback": "GradDirection"}, "GradDirection needs the whole gradient"),
        ({"tensor_parallel": 2}, "splits tensors 2 ways .*set tensor_parallel_size to 1"),
        ({"inference_mode": True}, "inference_mode must be false with ModelParallelStrategy"),
    ],
)
def test_what_cannot_be_split_so_is_refused(options, message, tmp_path, toy_target, two_ranks, store):
    arguments = {"root": str(tmp_path), "target": str(toy_target), "store": store}
    for text in two_ranks.run("tests.ranks.sharded_jobs:refused", **arguments, **options):
        assert re.search(message, text), text
