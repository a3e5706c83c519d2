import pytest

from dflash_lightning.checkpoint.writing.retrying import Outage, pause_after


@pytest.mark.parametrize(
    ("kind", "failures", "outage_s", "pause"),
    [
        ("transient", 1, 0.0, 1.0),
        ("transient", 4, 7.0, 8.0),
        ("endpoint", 9, 1e6, 30.0),  # for ever
        ("credentials", 3, 899.0, 4.0),
        ("credentials", 3, 901.0, None),
        ("denied", 1, 0.0, None),
        ("missing", 1, 0.0, None),
    ],
)
def test_pauses(kind, failures, outage_s, pause):
    assert pause_after(kind, failures=failures, outage_s=outage_s, random=0.5) == pause


def test_pauses_differ_between_runs():
    few, many = (pause_after("transient", failures=1, outage_s=0.0, random=r) for r in (0.0, 0.99))
    assert few == 0.5
    assert many > 1.4


def test_an_outage_is_timed_from_its_first_failure():
    outage = Outage()
    assert [outage.begin_or_go_on(now) for now in (10.0, 12.0, 15.0)] == [0.0, 2.0, 5.0]
    assert outage.failures == 3
    outage.end()
    assert outage.begin_or_go_on(20.0) == 0.0
