import dataclasses

import pytest

from dflash_lightning.evaluation.drafters import common_block_size, labelled, methods_for
from dflash_lightning.target.model import Target
from tests.decoding.drafters import random_drafter
from tests.toy import toy_model


@pytest.fixture(scope="module")
def drafters():
    """Trained with 4 and with 3 slots."""
    one, two = random_drafter(Target(toy_model())), random_drafter(Target(toy_model()))
    two.config = dataclasses.replace(two.config, block_size=3)
    assert one.config.block_size == 4
    return {"A": one, "B": two}


@pytest.mark.parametrize(("wanted", "size"), [(None, 3), (3, 3), (1, 1)])
def test_both_decode_with_one_block_size(drafters, wanted, size):
    assert common_block_size(drafters, wanted) == size


@pytest.mark.parametrize("wanted", [0, -1, 4])
def test_no_other_size_is_taken_for_one_that_is_none(drafters, wanted):
    with pytest.raises(ValueError, match=f"block_size is {wanted}, but this drafter was trained with"):
        common_block_size(drafters, wanted)


def test_every_method_of_every_drafter(drafters):
    names = [method.name for method in methods_for(drafters, [8, 0])]
    assert names == ["plain", "chain A", "tree 8 A", "tree 0 A", "chain B", "tree 8 B", "tree 0 B"]
    assert labelled("x", None) == {"": "x"}
    assert labelled("x", "y") == {"A": "x", "B": "y"}
