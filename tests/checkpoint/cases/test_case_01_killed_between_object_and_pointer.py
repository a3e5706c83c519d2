"""Case 1: killed between any two calls of the store, the newest checkpoint is step N or N-1, complete.

A dry run counts the calls of one publish, deletions included; each of them is then the last one.
"""

import subprocess
import sys

import pytest

from dflash_lightning.checkpoint.claiming.claim import claim
from dflash_lightning.checkpoint.job import Retention
from dflash_lightning.checkpoint.keeping.removal import clean_leftovers
from dflash_lightning.checkpoint.listing import list_manifests
from dflash_lightning.checkpoint.resuming.fetch import fetch
from dflash_lightning.checkpoint.resuming.resume import resolve
from dflash_lightning.checkpoint.stores import StoreSettings
from dflash_lightning.checkpoint.stores.fault_script import Died, Fault
from dflash_lightning.checkpoint.stores.faults import FaultyStore
from dflash_lightning.checkpoint.stores.local import LocalStore
from dflash_lightning.checkpoint.stores.memory import MemoryStore, name_store
from dflash_lightning.checkpoint.verify import check
from tests.checkpoint.saving import PREFIX, content, save

LOSSES = {1: 1.0, 2: 3.0, 3: 2.0, 4: 4.0}  # step 1 stays as the best; 2 and 3 go, two deletions at once
RULES = {"retention": Retention(monitor="loss")}


def save_step(store, step, **fields):
    return save(store, step, metrics={"loss": LOSSES.get(step, 9.0)}, **(RULES | fields))


def first_steps(store, prefix=PREFIX):
    for step in (1, 2, 3):
        save_step(store, step, prefix=prefix, retention=Retention(keep_last=-1, monitor="loss"))


def calls_of_a_publish():
    inner = MemoryStore()
    first_steps(inner)
    store = FaultyStore(inner)
    save_step(store, 4)
    return len(store.events)


CALLS = calls_of_a_publish()


def require_whole(store, prefix, uri, folder):
    """What a run that starts now would find. Returns the step."""
    for manifest in list_manifests(store, prefix).manifests:
        check(store, prefix, manifest, deep=True)  # none that is published is missing or corrupt
    found = resolve(store, prefix)
    assert found.step in (3, 4)
    assert fetch(uri, StoreSettings(), folder).read_bytes() == content(found.step)
    assert resolve(store, prefix, "best").step == 1
    return found.step


def require_clean(store, prefix):
    """After the next start and the next save nothing of the crash is left."""
    owner = claim(store, prefix, "a", now=9e9, stale_after_s=9.0, sleep=lambda seconds: None)
    clean_leftovers(store, prefix, owner, older_than_s=0.0, now=9e9)
    owner.release()
    save_step(store, 5, prefix=prefix)
    keys = [facts.key for facts in store.list(prefix)]
    assert sorted(m.step for m in list_manifests(store, prefix).manifests) == [1, 5]
    assert len(keys) == 6  # two manifests, their data, two pointers
    assert list(store.list_uploads(prefix)) == []


def test_case_01_the_dry_run_saw_all_stages():
    inner = MemoryStore()
    first_steps(inner)
    assert len(list_manifests(inner, PREFIX).manifests) == 3
    assert CALLS > 15
    save_step(inner, 4)
    assert [m.step for m in list_manifests(inner, PREFIX).manifests] == [4, 1]


@pytest.mark.parametrize("call", range(1, CALLS + 1))
def test_case_01_killed_before_a_call(call, tmp_path):
    inner = MemoryStore()
    first_steps(inner)
    with pytest.raises(Died):
        save_step(FaultyStore(inner, Fault("any", call, does="die")), 4)
    name_store("killed", inner)
    require_whole(inner, PREFIX, f"memory://killed/{PREFIX}", tmp_path)
    require_clean(inner, PREFIX)


def test_case_01_both_outcomes_occur(tmp_path):
    steps = set()
    for call in (1, CALLS):
        inner = MemoryStore()
        first_steps(inner)
        with pytest.raises(Died):
            save_step(FaultyStore(inner, Fault("any", call, does="die")), 4)
        steps.add(resolve(inner, PREFIX).step)
    assert steps == {3, 4}


KILLED = """
import sys
from pathlib import Path
from dflash_lightning.checkpoint.stores.fault_script import Fault
from dflash_lightning.checkpoint.stores.faults import FaultyStore
from dflash_lightning.checkpoint.stores.local import LocalStore
from tests.checkpoint.cases.test_case_01_killed_between_object_and_pointer import save_step
store = LocalStore(Path(sys.argv[1]))
save_step(FaultyStore(store, Fault("any", int(sys.argv[2]), does="exit")), 4, prefix="")
"""


@pytest.mark.slow
@pytest.mark.parametrize("call", range(1, CALLS + 1))
def test_case_01_a_process_that_ends_at_once_over_a_folder(call, tmp_path):
    store = LocalStore(tmp_path / "store")
    first_steps(store, prefix="")
    ended = subprocess.run(
        [sys.executable, "-c", KILLED, str(store.root), str(call)], capture_output=True, text=True
    )
    assert ended.returncode == 137, ended.stderr
    require_whole(store, "", str(store.root), tmp_path / "here")
    require_clean(store, "")
