"""Case 22: deadlines do not follow the wall clock, and a clock that is wrong is explained."""

import pytest

from dflash_lightning.checkpoint.stores import open_store
from tests.checkpoint.over_s3 import refusal


@pytest.mark.slow
def test_case_22_a_clock_that_is_wrong(proxy):
    proxy.add("answer", status=403, code="RequestTimeTooSkewed", times=None)
    error = refusal(open_store("s3://train/ck", proxy.settings())[0])
    assert error.kind == "clock"
    assert "set the clock (NTP)" in str(error)
