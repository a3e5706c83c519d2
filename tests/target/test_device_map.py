import pytest
import torch

from dflash_lightning.target.device_map import require_devices, require_first_devices, target_devices


def cuda(*indices):
    return [torch.device("cuda", index) for index in indices]


@pytest.mark.parametrize(
    ("local_rank", "local_world", "count", "devices"),
    [
        (0, 2, 3, cuda(2, 3, 4)),  # eight devices: two drafters, three targets each
        (1, 2, 3, cuda(5, 6, 7)),
        (3, 4, 1, cuda(7)),
        (1, 8, 0, cuda(1)),  # the drafter's own
    ],
)
def test_drafters_come_first_then_the_targets_of_each_rank(local_rank, local_world, count, devices):
    home = torch.device("cuda", local_rank)
    found = target_devices(home, local_rank=local_rank, local_world=local_world, count=count)
    assert found == devices


@pytest.mark.parametrize(("local_world", "count"), [(1, 7), (2, 3), (4, 1), (8, 0), (3, 2)])
def test_no_device_has_two_tasks(local_world, count):
    drafters = cuda(*range(local_world))
    targets = [
        device
        for rank, home in enumerate(drafters)
        for device in target_devices(home, local_rank=rank, local_world=local_world, count=count)
    ]
    assert targets == (drafters if count == 0 else cuda(*range(local_world, local_world * (1 + count))))


@pytest.mark.parametrize(("count", "times"), [(0, 1), (1, 1), (3, 3)])
def test_cpus_stand_in_for_devices(count, times):
    cpu = torch.device("cpu")
    assert target_devices(cpu, local_rank=1, local_world=2, count=count) == [cpu] * times


@pytest.mark.parametrize(
    ("count", "local_world", "available", "message"),
    [
        (
            3,
            8,
            8,
            "8 drafters on this node, each with 3 target devices of its own, need 32 devices, but 8 are",
        ),
        (-1, 1, None, r"must be at least 0 \(the drafter's own device\), got -1"),
    ],
)
def test_more_devices_than_there_are_are_refused(count, local_world, available, message):
    with pytest.raises(ValueError, match=message):
        require_devices(count, local_world=local_world, available=available)


@pytest.mark.parametrize(("count", "local_world", "available"), [(3, 2, 8), (0, 8, 8), (5, 2, None)])
def test_what_fits_is_accepted(count, local_world, available):
    require_devices(count, local_world=local_world, available=available)


@pytest.mark.parametrize(("count", "drafters"), [(1, [2, 3]), (3, [0, 2]), (1, [1]), (1, [1, 0])])
def test_targets_never_come_to_lie_on_drafters(count, drafters):
    with pytest.raises(ValueError, match=r"must be the first ones.*CUDA_VISIBLE_DEVICES"):
        require_first_devices(count, cuda(*drafters))


@pytest.mark.parametrize(
    ("count", "drafters"),
    [(3, cuda(0, 1)), (1, cuda(0)), (0, cuda(2, 5)), (2, [torch.device("cpu")] * 2)],
)
def test_the_first_devices_may_have_targets_behind_them(count, drafters):
    require_first_devices(count, drafters)
