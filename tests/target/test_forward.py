"""Several targets from one, each used by one thread at a time; and what a drafter borrows of them."""

import threading

import pytest
import torch

from dflash_lightning.target.ends import ends_of
from dflash_lightning.target.forward import TargetForward
from dflash_lightning.target.hidden_states import TargetStates
from dflash_lightning.target.model import Target
from dflash_lightning.target.side_streams import SideStreams
from dflash_lightning.target.twins import one_for_each, twin
from tests.toy import VOCAB, toy_llama, toy_model

CPU = torch.device("cpu")
TAPS = (1, 3, 5)


def ids(seed, shape=(2, 9)):
    return torch.randint(0, VOCAB, shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module", params=[toy_model, toy_llama], ids=["untied", "tied"])
def target(request):
    return Target(request.param())


# --- twins


def test_a_twin_shares_weights_and_nothing_else(target):
    other = twin(target, CPU)
    ours, theirs = dict(target.model.named_parameters()), dict(other.model.named_parameters())
    assert ours.keys() == theirs.keys()
    assert all(ours[name] is theirs[name] for name in ours)
    assert not {id(m) for m in target.model.modules()} & {id(m) for m in other.model.modules()}
    assert other.head is target.head


def test_a_twin_on_another_device_has_weights_of_its_own(target):
    """`meta` stands in for the other device: only the copy is looked at, a forward pass needs numbers."""
    with pytest.raises(ValueError, match="weights that were never loaded"):
        twin(target, torch.device("meta"))
    assert target.device == CPU  # the original stays where it is


def test_twins_compute_the_same_at_the_same_time(target):
    targets = one_for_each(target, [CPU] * 3)
    assert targets[0] is target
    batches = [ids(seed) for seed in range(12)]
    expected = [target.tapped_states(batch, TAPS).taps for batch in batches]
    found = {}

    def work(worker):
        for i in range(worker, len(batches), 3):
            found[i] = targets[worker].tapped_states(batches[i], TAPS).taps

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(found[i], expected[i]) for i in range(len(batches)))


# --- one forward at a time


def test_threads_that_share_a_target_take_turns(target):
    """Without a lock they would read each other's layers: tapped_forward works with hooks."""
    forward = TargetForward(target, TAPS, final=False, home=CPU)
    batches = [ids(seed) for seed in range(16)]
    expected = [target.tapped_states(batch, TAPS).taps for batch in batches]
    wrong = []

    def work(start, compute):
        wrong.extend(i for i in range(start, 16, 4) if not torch.equal(compute(batches[i]).taps, expected[i]))

    threads = [
        threading.Thread(target=work, args=(start, forward.ahead if start % 2 else forward))
        for start in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_failed_forward_does_not_lock_the_target(target):
    forward = TargetForward(target, TAPS, final=False, home=CPU)
    with pytest.raises(IndexError):
        forward(torch.full((1, 3), VOCAB))
    assert forward(ids(1)).taps.shape[:2] == (2, 9)


# --- ends


def test_the_ends_are_the_targets_own_tensors_on_its_device(target):
    ends = ends_of(target, CPU)
    assert ends.head.data_ptr() == target.head.data_ptr()
    assert ends.embedding.data_ptr() == target.parts.embed.weight.data_ptr()
    assert torch.equal(ends.embed(ids(3)), target.embed(ids(3)))
    assert not ends.embedding.requires_grad


def test_tied_ends_stay_tied_on_another_device(target):
    ends = ends_of(target, torch.device("meta"))
    tied = target.head is target.parts.embed.weight
    assert (ends.head is ends.embedding) is tied


# --- states


def test_states_move_without_a_copy_where_they_are_there():
    states = TargetStates(taps=torch.ones(1, 2, 3), final=None)
    same = states.to("cpu", non_blocking=True)
    assert same.taps is states.taps
    states.keep_for_this_stream()  # nothing to do on a CPU
    both = TargetStates(taps=torch.ones(1, 2, 3), final=torch.ones(1, 2, 1)).to("meta")
    assert both.final is not None
    assert both.taps.is_meta
    assert both.final.is_meta


def test_side_streams_are_nothing_without_cuda():
    assert SideStreams([CPU, CPU]).finish(lambda: 7) == 7


@pytest.mark.gpu
def test_ahead_on_cuda_is_finished_and_equal():
    device = torch.device("cuda", 0)
    target = Target(toy_model()).to(device)
    forward = TargetForward(target, TAPS, final=True, home=device)
    plain = target.tapped_states(ids(1).to(device), TAPS, final=True)
    torch.cuda.synchronize()
    ahead = forward.ahead(ids(1).pin_memory())
    ahead.keep_for_this_stream()
    torch.testing.assert_close(ahead.taps, plain.taps)
    torch.testing.assert_close(ahead.final, plain.final)
