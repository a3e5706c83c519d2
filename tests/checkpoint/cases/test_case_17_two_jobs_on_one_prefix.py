"""Case 17: of two jobs on one prefix one is refused, also where the store ignores conditions."""

import subprocess
import sys

import pytest

from dflash_lightning.checkpoint.stores import StoreError, open_store
from tests.checkpoint.claiming.test_claim import Careless, take

CLAIM = """
import sys, time
from dflash_lightning.checkpoint.claiming.claim import claim
from dflash_lightning.checkpoint.stores import StoreError, StoreSettings, open_store
store, prefix = open_store(sys.argv[1], StoreSettings(**eval(sys.argv[2])))
try:
    claim(store, prefix, sys.argv[3], now=time.time(), stale_after_s=300)
except StoreError as error:
    sys.exit(f"{error.kind}: {error}")
time.sleep(float(sys.argv[4]))
"""


def two_processes(uri, settings):
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", CLAIM, uri, repr(settings), name, "20"],
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in ("one", "two")
    ]
    loser = None
    try:
        while loser is None:
            loser = next((run for run in runs if run.poll() is not None), None)
        return loser.returncode, loser.stderr.read(), sum(run.poll() is None for run in runs)
    finally:
        for run in runs:
            run.kill()
            run.communicate()


@pytest.mark.slow
def test_case_17_two_jobs_on_one_prefix_of_a_directory(tmp_path):
    code, said, alive = two_processes(str(tmp_path), {})
    assert (code, alive) == (1, 1)
    assert "conflict: " in said
    assert "two runs under one prefix" in said


@pytest.mark.slow
def test_case_17_two_jobs_on_one_prefix_of_a_bucket(weed, s3_env, s3_uri):
    settings = {"endpoint_url": weed.endpoint, "path_style": True}
    code, said, alive = two_processes(s3_uri, settings)
    assert (code, alive) == (1, 1)
    assert "two runs under one prefix" in said
    store, prefix = open_store(s3_uri, weed.settings())
    assert len([*store.list(prefix)]) == 1


def test_case_17_of_two_that_start_together_one_wins_where_the_store_is_careless():
    store = Careless()
    other = {}

    def second_starts_and_is_faster(seconds):
        if not other:
            other["found"] = None
            store.objects.clear()  # it saw an empty prefix as well
            other["claim"] = take(store, "second")

    with pytest.raises(StoreError, match="run second"):
        take(store, "first", sleep=second_starts_and_is_faster)
    other["claim"].renew(1001.0)
