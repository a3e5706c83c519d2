"""A .npy file of lengths: what is read, and what is refused in which words."""

from pathlib import Path

import numpy as np
import pytest

from dflash_lightning.plan_view.lengths import DEFAULT_SHARE, read_samples, with_supervised


def saved(folder, array, name="lengths.npy"):
    np.save(folder / name, array)
    return str(folder / name)


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint16, ">i4"])
def test_integers_of_any_kind_are_lengths(tmp_path, dtype):
    samples = read_samples(saved(tmp_path, np.array([3, 10, 500], dtype)), 0.5)
    assert samples.lengths.tolist() == [3, 10, 500]
    assert samples.lengths.dtype == np.int64
    assert samples.supervised.tolist() == [1, 5, 250]


def test_nobody_knows_the_supervised_tokens_so_a_share_is_assumed(tmp_path):
    samples = read_samples(saved(tmp_path, np.array([100, 1])))
    assert samples.supervised.tolist() == [int(100 * DEFAULT_SHARE), 1]  # 1: no sample loses its only token


def test_supervised_counts_come_from_a_file_too(tmp_path):
    counts = saved(tmp_path, np.array([0, 7]), "counts.npy")
    assert read_samples(saved(tmp_path, np.array([5, 7])), counts).supervised.tolist() == [0, 7]
    assert with_supervised(np.array([5, 7]), 0.0).supervised.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.ones(3), r"--lengths .*holds float64 in shape \(3,\), not one row of integers"),
        (np.ones((3, 2), int), r"holds int64 in shape \(3, 2\), not one row of integers"),
        (np.array(5), r"holds int64 in shape \(\), not one row of integers"),
        (np.array([3, 0, 0]), "sample 1 has 0 tokens, at least 1 is possible; leave such samples out"),
        (np.array([3, 4, -7]), "sample 2 has -7 tokens"),
        (
            np.array([3, 2**63 + 5], np.uint64),
            "sample 1 has 9223372036854775813 tokens, at most 92233720368547",
        ),
        (np.zeros(0, int), "is empty: a plan needs at least one sample"),
        (np.array(["a", "b"]), "holds <U1 in shape"),
    ],
)
def test_what_no_lengths_are_like_is_refused(tmp_path, array, message):
    with pytest.raises(ValueError, match=message):
        read_samples(saved(tmp_path, array))


def test_python_objects_are_not_unpickled(tmp_path):
    with pytest.raises(ValueError, match="cannot be read as numbers .* it holds Python objects"):
        read_samples(saved(tmp_path, np.array([1, None], object)))


def test_other_files_are_not_lengths(tmp_path):
    with pytest.raises(FileNotFoundError, match="--lengths .*nowhere.npy: there is no such file"):
        read_samples(tmp_path / "nowhere.npy")
    (tmp_path / "text.npy").write_text("1, 2, 3")
    with pytest.raises(ValueError, match="text.npy is not a .npy file"):
        read_samples(tmp_path / "text.npy")
    whole = saved(tmp_path, np.arange(1, 9))
    (tmp_path / "cut.npy").write_bytes(Path(whole).read_bytes()[:-9])
    with pytest.raises(ValueError, match="cut.npy cannot be read as numbers .*cut short"):
        read_samples(tmp_path / "cut.npy")


@pytest.mark.parametrize("share", [-0.1, 1.5, float("nan")])
def test_a_share_lies_between_0_and_1(tmp_path, share):
    with pytest.raises(ValueError, match="--supervised is a share between 0 and 1, or a .npy file"):
        read_samples(saved(tmp_path, np.array([5])), share)


def test_counts_and_lengths_speak_of_the_same_samples(tmp_path):
    lengths = saved(tmp_path, np.array([5, 7]))
    with pytest.raises(ValueError, match="holds 1 counts for 2 lengths; give one count per sample"):
        read_samples(lengths, saved(tmp_path, np.array([5]), "one.npy"))
    with pytest.raises(ValueError, match="--supervised .*many.npy: sample 1 has a count of 8 for 7 tokens"):
        read_samples(lengths, saved(tmp_path, np.array([5, 8]), "many.npy"))
