"""What is said from log to log, and how deep the queues become."""

from dflash_lightning.target.balance.depth import DepthBounds
from dflash_lightning.target.balance.slow_rank import SlowRule
from dflash_lightning.training.prefetch.prefetch_watch import PrefetchWatch
from tests.target.balance.intervals import interval

CALM = interval()
SLOW_TARGET = interval(wait=3.0, busy=(10.0,))
JITTER = interval(wait=1.0, feed_wait=3.0)


def watch(depth=2, most=4, states_from="own devices"):
    bounds = DepthBounds(most=most, patience=2)
    return PrefetchWatch(bounds, SlowRule(patience=2), depth=depth, states_from=states_from)


class Ranks:
    """The rows of all ranks, ours first; counts how often they are asked for."""

    def __init__(self, *others):
        self.others = others
        self.asked = 0

    def __call__(self, row):
        self.asked += 1
        return [row, *(other.row() for other in self.others)]


def test_a_bottleneck_is_told_once_and_only_when_it_lasts():
    ours, said = watch(), []
    for interval_ in [SLOW_TARGET, SLOW_TARGET, CALM, *[SLOW_TARGET] * 5, *[CALM] * 4, *[SLOW_TARGET] * 3]:
        said.append(ours.look(interval_, Ranks())[1])
    assert [number for number, lines in enumerate(said) if lines] == [5, 14]
    assert said[5] == said[14]
    assert "the bottleneck is the target" in said[5][0]


def test_a_slow_rank_is_named():
    ours, ranks = watch(), Ranks(CALM, CALM)
    assert ours.look(SLOW_TARGET, ranks)[1] == []
    (line,) = ours.look(SLOW_TARGET, ranks)[1]
    assert line.startswith("rank 0 holds the other ranks up")
    assert ranks.asked == 2


def test_both_lines_say_disk_where_states_come_from_there():
    ours, ranks, slow = watch(states_from="disk"), Ranks(CALM), interval(wait=8.0, busy=(10.0,))
    said = [line for _ in range(3) for line in ours.look(slow, ranks)[1]]
    assert len(said) == 2
    assert "It reads hidden states slowly: look at its disk (model.hidden_states)" in said[0]
    assert "the bottleneck is reading hidden states" in said[1]
    assert "target_devices" not in "".join(said)


def test_depth_follows_the_worst_rank_and_is_logged_as_it_was():
    ours = watch()
    depths = [ours.look(CALM, Ranks(JITTER))[0]["prefetch/depth"] for _ in range(4)]
    assert depths == [2, 3, 4, 4]
    assert ours.depth.depth == 4


def test_a_resumed_watch_goes_on_at_the_depth_that_was_found():
    before = watch()
    before.look(JITTER, Ranks())
    after, narrower = watch(), watch(most=2)
    after.load_state_dict(before.state_dict())
    assert after.depth == before.depth
    narrower.load_state_dict(before.state_dict())
    assert narrower.depth.depth == narrower.depth.floor == 2
