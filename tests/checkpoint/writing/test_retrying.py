import pytest

from dflash_lightning.checkpoint.writing.retrying import CREDENTIALS_S, Outage, pause_after


@pytest.mark.parametrize(
    ("kind", "failures", "refused_s", "pause"),
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
def test_pauses(kind, failures, refused_s, pause):
    assert pause_after(kind, failures=failures, refused_s=refused_s, random=0.5) == pause


def test_pauses_differ_between_runs():
    few, many = (pause_after("transient", failures=1, refused_s=0.0, random=r) for r in (0.0, 0.99))
    assert few == 0.5
    assert many > 1.4


def test_an_outage_is_timed_from_its_first_failure():
    outage = Outage()
    for now, lasts_s in [(10.0, 0.0), (12.0, 2.0), (15.0, 5.0)]:
        outage.missed("transient", now=now, random=0.5)
        assert outage.lasts_s(now) == lasts_s
    assert outage.failures == 3
    outage.end()
    assert outage.lasts_s(20.0) == 0.0


LONG = CREDENTIALS_S + 100


@pytest.mark.parametrize(
    ("failed", "given_up"),
    [
        ([("endpoint", 0), ("endpoint", LONG), ("credentials", LONG + 1)], False),
        ([("transient", 0), ("credentials", LONG), ("credentials", LONG + 800)], False),
        ([("full", 0), ("credentials", LONG), ("credentials", LONG + CREDENTIALS_S + 1)], True),
        ([("credentials", 0), ("credentials", LONG)], True),
        ([("credentials", 0), ("endpoint", 800), ("credentials", LONG)], False),
        ([("credentials", 0), ("stored", 800), ("credentials", LONG)], False),
        ([("credentials", 0), ("endpoint", LONG)], False),
    ],
)
def test_credentials_have_their_time_from_their_own_first_failure(failed, given_up):
    """An outage of the store, such as of the machine that hands out credentials too, takes none of it."""
    outage = Outage()
    for kind, now in failed:
        if kind == "stored":
            outage.end()
        else:
            pause = outage.missed(kind, now=float(now), random=0.5)
    assert (pause is None) == given_up
