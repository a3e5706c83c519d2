import numpy as np
import pytest

from dflash_lightning.plan import Samples


@pytest.mark.parametrize(
    ("lengths", "supervised", "message"),
    [
        ([5, 3], [1], r"must be two rows of equal length, got shapes \(2,\) and \(1,\)"),
        ([5, 0, 3], [1, 0, 3], "sample 1 has a length of 0: a sample holds at least one token"),
        ([5, 3], [1, 4], "sample 1 has a supervised count of 4: it lies between 0 and the length; rebuild"),
        ([5, 3], [-1, 3], "sample 0 has a supervised count of -1"),
    ],
)
def test_arrays_that_describe_no_dataset_are_refused(lengths, supervised, message):
    with pytest.raises(ValueError, match=message):
        Samples(np.array(lengths), np.array(supervised))
