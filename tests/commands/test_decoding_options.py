"""Mistakes in the options that every decoding command has, each by its name and before any work."""

import pytest
from jsonargparse import Namespace

from dflash_lightning.commands.decoding_options import require_decoding, require_device
from dflash_lightning.commands.sampling_options import require_sampling


def sampling(**changes):
    return Namespace(**{"temperature": 0.0, "top_k": 0, "top_p": 1.0, "seed": 0, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"temperature": -1.0}, "--temperature -1 divides the logits"),
        ({"temperature": float("nan")}, "--temperature nan divides the logits"),
        ({"temperature": float("inf")}, "--temperature inf divides the logits"),
        ({"top_k": -1, "temperature": 1.0}, "--top-k -1 counts tokens: 1 or more, or 0 for all"),
        ({"top_p": 0.0, "temperature": 1.0}, "--top-p 0 is a share of probability: above 0"),
        ({"top_p": 1.5, "temperature": 1.0}, "--top-p 1.5 is a share of probability"),
        ({"seed": -1}, "--seed -1 must be at least 0 and below 2\\^63"),
        ({"seed": 1 << 63}, "--seed 9223372036854775808 must be at least 0 and below 2\\^63"),
        (
            {"top_k": 9},
            "--top-k 9 limits what is drawn, but at --temperature 0 nothing is drawn; give a temp",
        ),
        ({"top_p": 0.5}, "--top-p 0.5 limits what is drawn, but at --temperature 0 nothing is drawn"),
    ],
)
def test_what_cannot_be_drawn_from(changes, message):
    with pytest.raises(ValueError, match=message):
        require_sampling(sampling(**changes))


@pytest.mark.parametrize(
    "changes", [{}, {"seed": (1 << 63) - 1}, {"temperature": 0.7, "top_k": 9, "top_p": 0.5}]
)
def test_what_can(changes):
    require_sampling(sampling(**changes))


@pytest.mark.parametrize(
    ("limit", "block", "budgets", "message"),
    [
        (0, None, [], "--max-new-tokens 0 must be at least 1"),
        (9, 0, [], "--block-size 0 must be at least 1"),
        (9, -2, [], "--block-size -2 must be at least 1"),
        (9, 4, [8, -1], "--tree -1 counts the nodes of a tree: 0 or more"),
        (9, 4, [8, 4, 8], "--tree names 8 more than once"),
    ],
)
def test_what_cannot_be_decoded(limit, block, budgets, message):
    with pytest.raises(ValueError, match=message):
        require_decoding(Namespace(max_new_tokens=limit, block_size=block), budgets)


def test_what_can_be_decoded():
    require_decoding(Namespace(max_new_tokens=1, block_size=1), [0, 1, 8])


@pytest.mark.parametrize("name", ["gpu", "", "0", "cuda:x", "cuda:-1", "cuda:99", "meta", "hpu", "vulkan"])
def test_devices_that_are_not_there(name):
    with pytest.raises(
        ValueError, match=rf"--device '{name}' cannot be used here: .*; name one that is there"
    ):
        require_device(name)


def test_the_device_that_is_always_there():
    require_device("cpu")
