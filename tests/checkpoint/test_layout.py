"""Names and keys: what belongs together shares a name, and nothing else passes for one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_lightning.checkpoint.layout import (
    below,
    data_key,
    manifest_key,
    name_of_data,
    name_of_manifest,
    new_name,
    require_name,
    shard_key,
)


@given(st.integers(0, 10**14), st.integers(0, 99))
def test_keys_lead_back_to_their_name(step, rank):
    name = new_name(step)
    assert require_name(name) == step
    assert name_of_manifest(manifest_key(name)) == name
    assert name_of_data(data_key(name)) == name
    assert name_of_data(shard_key(name, rank)) == name
    assert name != new_name(step)


def test_what_a_name_looks_like():
    assert data_key("step=8-1a2b3c4d") == "data/step=8-1a2b3c4d.ckpt"
    assert shard_key("step=8-1a2b3c4d", 3) == "data/step=8-1a2b3c4d/rank=3.ckpt"
    assert manifest_key("step=8-1a2b3c4d") == "manifests/step=000000000008-1a2b3c4d.json"


@pytest.mark.parametrize(
    "name", ["", "step=8", "step=-8-1a2b3c4d", "step=8-1A2B3C4D", "step=08-1a2b3c4d", "../step=8-1a2b3c4d"]
)
def test_no_names(name):
    with pytest.raises(ValueError, match="is not the name of a checkpoint, such as step=8-1a2b3c4d"):
        require_name(name)


@pytest.mark.parametrize(
    "key", ["data/notes.txt", "last.json", "data/step=8-1a2b3c4d.ckpt.bak", "x/data/step=8-1a2b3c4d.ckpt"]
)
def test_other_keys_are_nobodys(key):
    assert name_of_data(key) is None
    assert name_of_manifest(key) is None


def test_below_a_prefix():
    assert below("runs/a", "runs/a/data/x") == "data/x"
    assert below("", "data/x") == "data/x"
    assert below("runs/a", "runs/ab/data/x") == "runs/ab/data/x"
