"""Validation gives the same values on one and two ranks, whatever each of them holds (design.md 4)."""

from dataclasses import replace

import pytest

from dflash_lightning.objective.kinds import DPace
from tests.ranks import jobs
from tests.runs import PLAN, make_store

pytestmark = [pytest.mark.ranks, pytest.mark.slow]

HELD_OUT = {
    "more on one rank": [10, 30, 20, 15, 9, 31, 12, 12, 29],
    "fewer batches than ranks": [10],
    "none": [],
}


@pytest.fixture(scope="module", params=HELD_OUT)
def store(request, tmp_path_factory, toy_target):
    folder = tmp_path_factory.mktemp("store")
    return str(make_store(folder, toy_target, [12, 20, 30, 30] * 4, held_out=HELD_OUT[request.param]))


def assert_equal_rows(ours, alone):
    """The logged rows of validation: bit for bit where integers are summed."""
    names = [name for name in ours[0]["rows"][0] if name.startswith("val/")]
    assert ours[1]["rows"] == []
    for name in names:
        theirs = jobs.logged(alone["rows"], name)
        exact = name != "val/loss"
        assert jobs.logged(ours[0]["rows"], name) == pytest.approx(theirs, rel=0 if exact else 1e-9), name


@pytest.mark.parametrize("limit", [20, 65_536])
@pytest.mark.parametrize("objective", [None, DPace()])
def test_two_ranks_see_what_one_sees(limit, objective, tmp_path, toy_target, store, two_ranks):
    settings = {
        "target": str(toy_target),
        "store": store,
        "module": {"lr": 1e-30} | ({"objective": objective} if objective else {}),  # no weight moves
        "data": {"plan": replace(PLAN, max_block_tokens=limit)},
        "max_epochs": 1,
    }
    alone = jobs.fit(str(tmp_path / "one"), **settings)
    ours = two_ranks.run("tests.ranks.jobs:fit", root=str(tmp_path / "two"), **settings)
    assert_equal_rows(ours, alone)


def test_two_ranks_decode_what_one_decodes(tmp_path, toy_target, two_ranks):
    store = str(make_store(tmp_path, toy_target, [12, 20] * 4, held_out=[10, 30, 20, 15, 9]))
    settings = {"target": str(toy_target), "store": store, "decode": True}
    alone = jobs.validate(str(tmp_path / "one"), **settings)
    ours = two_ranks.run("tests.ranks.jobs:validate", root=str(tmp_path / "two"), **settings)
    names = [name for name in alone if "decode" in name or "lookup" in name]
    assert len(names) == 4
    for name in names:
        assert alone[name] == ours[0][name] == ours[1][name], name
