import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dflash_lightning.data.conversations import RowError
from dflash_lightning.data.split import Splitter, content_key, side

IDS = st.lists(st.integers(0, 9), min_size=1, max_size=4).map(lambda ids: np.array(ids, np.int32))


@settings(deadline=None, max_examples=50)
@given(rows=st.lists(IDS, max_size=40), share=st.floats(0, 1))
def test_equal_rows_are_never_on_both_sides(rows, share):
    sides = {}
    splitter = Splitter(share)
    for row in rows:
        sides.setdefault(tuple(row), set()).add(splitter.place(row, held_out=False))
    assert all(len(of_row) == 1 for of_row in sides.values())


def test_the_share_is_kept_on_average():
    sides = [side(content_key(np.array([n, 7], np.int32)), 0.1) for n in range(5000)]
    assert 400 < sides.count("validation") < 600  # 500 +- 5 sigma
    assert {side(content_key(np.array([n], np.int32)), 0.0) for n in range(500)} == {"train"}


def test_the_key_is_fixed():
    """A store that is made again next year has the same validation rows."""
    assert content_key(np.array([1, 2, 3], np.int32)).hex() == "b30a3c159d7e8193559a42a84f1fcae1"


def test_rows_that_are_held_out_as_a_whole_do_not_train():
    splitter = Splitter(0.0)
    held_out, other = np.array([1, 2], np.int32), np.array([1, 2, 3], np.int32)
    assert splitter.place(held_out, held_out=True) == "validation"
    assert splitter.place(other, held_out=False) == "train"
    with pytest.raises(RowError, match="also among the validation inputs"):
        splitter.place(held_out, held_out=False)
