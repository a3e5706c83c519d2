"""One row of every rank; several ranks: tests/ranks."""

import pytest

from dflash_lightning.training.gather import texts_of_all_ranks
from tests.runs import toy_trainer


@pytest.mark.parametrize("text", ["", "a", "größer"])
def test_a_text_of_any_length_arrives(text, tmp_path):
    assert texts_of_all_ranks(toy_trainer(tmp_path), text) == [text]
