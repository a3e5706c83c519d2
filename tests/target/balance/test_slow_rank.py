"""Which rank is named, after how long, and how often."""

import pytest

from dflash_lightning.target.balance.slow_rank import SlowRank, SlowRule, describe, stands_out
from tests.target.balance.intervals import interval

EVEN = [interval(wait=1.0)] * 4
THIRD = [interval(wait=0.1), interval(wait=0.1), interval(wait=4.0, pending=5000.0), interval(wait=0.1)]
FIRST = [interval(wait=4.0, source=9.0), *[interval(wait=0.1)] * 3]


@pytest.mark.parametrize(
    ("waits", "slow"),
    [
        ([1.0, 1.0, 1.0], None),
        ([0.1, 3.0, 0.1], 1),
        ([1.6, 3.0, 1.6], None),  # not twice as long
        ([0.0, 0.1, 0.0], None),  # one percent of its time: no matter
        ([5.0, 0.0], 0),
        ([5.0], None),  # nobody waits for it
    ],
)
def test_who_stands_out(waits, slow):
    assert stands_out([interval(wait=wait) for wait in waits], factor=2.0) == slow


def test_a_rank_is_named_once_after_several_logs_in_a_row():
    watch = SlowRank(SlowRule(patience=3), "own devices")
    history = [THIRD, THIRD, EVEN, THIRD, THIRD, THIRD, THIRD, EVEN, THIRD, FIRST, FIRST, FIRST, *[EVEN] * 4]
    said = {number: line for number, ranks in enumerate(history) if (line := watch.look(ranks))}
    assert list(said) == [5, 11, 14]
    assert said[5] == (
        "rank 2 holds the other ranks up: its training waits for batches 40.0 % of the time, theirs 1.0 % "
        "(3 logs in a row); 5,000 padded tokens wait for its target, 0 for theirs. Its target is slow: "
        "look at its GPUs, and for other processes there"
    )
    assert said[11].startswith("rank 0 holds")
    assert "Its data loader is slow: look at its disk" in said[11]
    assert said[14] == "rank 0 no longer holds the other ranks up"


@pytest.mark.parametrize(
    ("states_from", "source", "queue", "reason"),
    [
        ("own devices", 1.0, "wait for its target, 0 for theirs", "Its target is slow: look at its GPUs"),
        (
            "drafter's device",
            1.0,
            "wait for its target, 0 for theirs",
            "Its target is slow: look at its GPUs",
        ),
        (
            "disk",
            1.0,
            "wait to be read there, 0 on others",
            "It reads hidden states slowly: look at its disk (model.hidden_states)",
        ),
        ("disk", 9.0, "wait to be read there, 0 on others", "Its data loader is slow: look at its disk"),
        (
            "own devices",
            9.0,
            "wait for its target, 0 for theirs",
            "Its data loader is slow: look at its disk",
        ),
    ],
)
def test_where_to_look_depends_on_where_states_come_from(states_from, source, queue, reason):
    ranks = [interval(wait=4.0, source=source, pending=5000.0), interval(wait=0.1)]
    assert describe(0, ranks, 3, states_from).endswith(
        f"(3 logs in a row); 5,000 padded tokens {queue}. {reason}, and for other processes there"
    )


@pytest.mark.parametrize(("factor", "patience"), [(1.0, 3), (2.0, 0)])
def test_rules_that_make_no_sense_are_refused(factor, patience):
    with pytest.raises(ValueError, match=f"got factor {factor} and patience {patience}"):
        SlowRule(factor=factor, patience=patience)
