"""A target that all ranks of a node hold together (FSDP2) trains the drafter of a whole one, bit for bit."""

import re

import pytest
import torch

from dflash_lightning.target.dispatch import PrefetchPolicy
from tests.ranks.test_sharded_training import run as run
from tests.ranks.test_sharded_training import store as store

pytestmark = [pytest.mark.ranks, pytest.mark.slow]


@pytest.mark.parametrize("sharded", [False, True], ids=["whole drafter", "split drafter"])
def test_steps_validation_and_weights_are_those_of_a_whole_target(run, sharded):
    whole, split = run(sharded=sharded), run(sharded=sharded, sharded_target=True)
    for ours, theirs in zip(split, whole, strict=True):
        assert len(ours["steps"]) == len(theirs["steps"]) > 8
        for step, record in zip(ours["steps"], theirs["steps"], strict=True):
            assert step["norm"] == record["norm"]
            assert step["train/loss"] == record["train/loss"]
        assert ours["validation"] == theirs["validation"]
        for name, value in ours["weights"].items():
            assert torch.equal(value, theirs["weights"][name]), name
        assert theirs["states"] == "target on the same device"
        assert ours["states"] == "target on the 2 ranks of the node together"
        assert ours["target_held"] == theirs["target_held"] // 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"inference_mode": True}, "^model.target_settings.sharded .* set trainer.inference_mode to false$"),
        ({"module": {"target_devices": 1}}, "^model.target_settings.sharded .*target_devices is 1: set one"),
        ({"module": {"prefetch": PrefetchPolicy()}}, "^model.target_settings.sharded .*prefetch.depth 2"),
        ({"callback": "PrefetchBalance"}, "take PrefetchBalance out of trainer.callbacks$"),
        (
            {"callback": "HeldOutDecoding"},
            "^HeldOutDecoding decodes on each rank for itself, and model.target",
        ),
        ({"devices": 1, "strategy": "auto"}, "^model.target_settings.sharded .*, but this node has 1: set"),
    ],
)
def test_what_ranks_cannot_do_together_is_refused(options, message, tmp_path, toy_target, two_ranks, store):
    arguments = {"root": str(tmp_path), "target": str(toy_target), "store": store, "sharded_target": True}
    for text in two_ranks.run("tests.ranks.sharded_jobs:refused", **arguments, **options):
        assert re.search(message, text), text
