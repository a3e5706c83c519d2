"""Written, then read: every sample's states are those of the target, or an error."""

import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from dflash_lightning.target.model import Target
from dflash_lightning.target.stored.reading import StoredStates
from tests.target.stored.toys import LENGTHS, TAPS, identity, ids_of, write_toy
from tests.toy import HIDDEN, toy_model

FIRST = {"train": 0, "validation": 4}


@pytest.fixture(scope="module")
def target():
    return Target(toy_model())


@pytest.fixture(scope="module")
def written(tmp_path_factory, target):
    folder = tmp_path_factory.mktemp("states") / "toy"
    assert len(write_toy(folder, target).shards) > 2  # else no test crosses a shard
    return folder


@pytest.fixture
def copied(written, tmp_path):
    """For tests that damage something."""
    return shutil.copytree(written, tmp_path / "copy")


def alone(target, sample, taps=TAPS):
    """The target on one sample, without padding and without company."""
    return target.tapped_states(torch.from_numpy(ids_of(sample))[None], taps, final=True)


@pytest.mark.parametrize("split", ["train", "validation"])
def test_states_are_the_targets_padded_with_zeros(written, target, split):
    stored = StoredStates.open(written)
    ids = list(range(stored.manifest.samples[split]))[::-1]
    states = stored.states(split, ids, 14, taps=TAPS, final=True)
    for row, sample in enumerate(ids):
        length, expected = LENGTHS[FIRST[split] + sample], alone(target, FIRST[split] + sample)
        # Other rows in the batch may move last digits (see test_equal_batches_give_equal_bits).
        torch.testing.assert_close(states.taps[row, :length], expected.taps[0], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(states.final[row, :length], expected.final[0], rtol=1e-4, atol=1e-5)
        assert not states.taps[row, length:].any()
        assert not states.final[row, length:].any()


def test_equal_batches_give_equal_bits(tmp_path, target):
    """One row in each forward pass, then and now: nothing is lost on the way to the disk and back."""
    write_toy(tmp_path / "toy", target, max_tokens=1)
    stored = StoredStates.open(tmp_path / "toy")
    for sample in range(4):
        states = stored.states("train", [sample], LENGTHS[sample], taps=TAPS, final=True)
        assert torch.equal(states.taps, alone(target, sample).taps)
        assert torch.equal(states.final, alone(target, sample).final)


def test_fewer_taps_in_another_order_are_columns_of_what_is_there(written, target):
    states = StoredStates.open(written).states("train", [2, 0], 12, taps=(5, 1), final=False)
    assert states.final is None
    assert states.taps.shape == (2, 12, 2 * HIDDEN)
    torch.testing.assert_close(states.taps[0], alone(target, 2, (5, 1)).taps[0], rtol=1e-4, atol=1e-5)


def test_a_ghost_is_a_copy_and_a_longer_row_is_cut(written):
    stored = StoredStates.open(written)
    whole = stored.states("train", [2], 12, taps=TAPS, final=False).taps
    cut = stored.states("train", [~2], 5, taps=TAPS, final=False).taps
    assert torch.equal(cut, whole[:, :5])


def test_several_threads_may_read(written):
    stored = StoredStates.open(written)

    def read(sample):
        return stored.states("train", [sample], 12, taps=TAPS, final=True).taps

    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(read, [0, 1, 2, 3] * 5))
    assert all(torch.equal(states, read(i % 4)) for i, states in enumerate(together))


def test_what_a_run_needs_is_compared_before_it_starts(written):
    stored = StoredStates.open(written)
    stored.require_serves(identity())
    with pytest.raises(ValueError, match=r"(?s)are not those of this run \(target.*toy there, other in this"):
        stored.require_serves(identity(target="other"))
    with pytest.raises(ValueError, match="or set model.hidden_states to null, which runs the target"):
        stored.require_serves(identity(taps=(2,)))


# --- damage


def data_start(path):
    """Offset of the first byte of states: behind the length and the header."""
    with path.open("rb") as file:
        return 8 + int.from_bytes(file.read(8), "little")


def flip(path, offset):
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("where", ["first byte of the states", "last byte", "middle"])
def test_a_flipped_byte_in_a_shard_is_refused(copied, where):
    path = copied / "shard-00001.safetensors"
    start, size = data_start(path), path.stat().st_size
    # Behind the states lie the sample numbers and the checksums of an unfinished folder: nobody reads them.
    first = StoredStates.open(copied)._shard(1)
    states = sum(part.numel() * 4 for part in first.values())
    bookkeeping = size - start - states
    flip(path, {"last byte": size - 1, "middle": start + bookkeeping + states // 2}.get(where, size - states))
    stored = StoredStates.open(copied)  # cheap: sizes alone
    with pytest.raises(ValueError, match=r"shard-00001.safetensors are damaged: sample \d+ has checksum"):
        stored.verify()


def test_only_the_damaged_sample_is_refused(copied):
    path = copied / "shard-00000.safetensors"
    flip(path, path.stat().st_size - 1)
    stored = StoredStates.open(copied)
    refused = []
    for sample in range(4):
        try:
            stored.states("train", [sample], 12, taps=TAPS, final=True)
        except ValueError:
            refused.append(sample)
    assert len(refused) == 1


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "shard-00002.safetensors").unlink(), "shard-00002.safetensors is missing"),
        (
            lambda folder: (folder / "shard-00000.safetensors").write_bytes(b"x"),
            r"shard-00000.safetensors has 1 bytes, \d+ were written",
        ),
        (lambda folder: flip(folder / "index.safetensors", -1), "index.safetensors is not the one that was"),
        (lambda folder: (folder / "index.safetensors").unlink(), "index.safetensors is not the one that was"),
    ],
)
def test_a_folder_that_is_not_whole_does_not_open(copied, damage, message):
    damage(copied)
    with pytest.raises(ValueError, match=message):
        StoredStates.open(copied)


@pytest.mark.parametrize(
    ("there", "damaged", "message"),
    [
        (b'"F32"', b'"I32"', r"are damaged: taps is torch.int32"),
        (b'"F32"', b'"F3\x01"', "shard-00000.safetensors cannot be read"),
    ],
)
def test_a_damaged_header_is_refused(copied, there, damaged, message):
    path = copied / "shard-00000.safetensors"
    path.write_bytes(path.read_bytes().replace(there, damaged))
    with pytest.raises(ValueError, match=message):
        StoredStates.open(copied).verify()


def test_no_folder_and_an_unfinished_one_are_told_apart(tmp_path, copied):
    with pytest.raises(FileNotFoundError, match="are not there: write them with `python cli.py prepare"):
        StoredStates.open(tmp_path / "none")
    copied.rename(tmp_path / "none.partial")
    with pytest.raises(FileNotFoundError, match="are unfinished: go on with"):
        StoredStates.open(tmp_path / "none")
