"""Case 17: two jobs on one prefix."""

import json
import os
import subprocess
import sys

import pytest

from dflash_lightning.checkpoint.claiming.claim import LOOK_S, WATCH_S, claim
from dflash_lightning.checkpoint.claiming.heartbeat import EVERY_S
from dflash_lightning.checkpoint.claiming.owner import OWNER
from dflash_lightning.checkpoint.stores import StoreError
from dflash_lightning.checkpoint.stores.memory import MemoryStore

STALE_S = 300.0


def take(store, run_id, *, now=1000.0, prefix="runs/a", **options):
    options.setdefault("sleep", lambda seconds: None)
    return claim(store, prefix, run_id, now=now, stale_after_s=STALE_S, **options)


class Careless(MemoryStore):
    """Ignores "only if absent", as some servers do."""

    def put(self, key, data, *, only_if_absent=False):
        super().put(key, data)


def change_owner(store, **changes):
    key = f"runs/a/{OWNER}"
    store.put(key, json.dumps(json.loads(store.read(key)) | changes).encode())


def test_the_second_run_is_refused_with_who_where_since_when_and_the_way_out():
    store = MemoryStore()
    take(store, "first", now=1000.0)
    with pytest.raises(StoreError) as caught:
        take(store, "second", now=1042.0)
    assert caught.value.kind == "conflict"
    for text in (
        "memory://memory/runs/a/owner.json says that run first",
        f"process {os.getpid()} on ",
        "last alive 42 s ago",
        "Give this run another prefix, or stop that one",
        "silent for 300 s, or delete owner.json",
    ):
        assert text in str(caught.value)


def test_other_prefixes_are_free():
    store = MemoryStore()
    take(store, "first")
    take(store, "second", prefix="runs/b")


def test_a_released_prefix_is_free():
    store = MemoryStore()
    take(store, "first").release()
    second = take(store, "second")
    assert second.owner.run_id == "second"
    second.release()
    second.release()
    assert store.objects == {}


def test_heartbeats_keep_a_prefix():
    store = MemoryStore()
    first = take(store, "first", now=1000.0)
    first.renew(1250.0)
    with pytest.raises(StoreError, match="last alive 249 s ago"):
        take(store, "second", now=1499.0)


def test_a_silent_owner_is_taken_over_with_a_warning_and_learns_it(caplog):
    store = MemoryStore()
    first = take(store, "first", now=1000.0)
    take(store, "second", now=1300.0)
    assert "taking over memory://memory/runs/a from run first" in caplog.text
    assert f"silent for {300 + WATCH_S:.0f} s" in caplog.text
    with pytest.raises(
        StoreError, match="now belongs to run second .*must not write there any more"
    ) as caught:
        first.renew(1301.0)
    assert caught.value.kind == "conflict"
    first.release()
    assert json.loads(store.read(f"runs/a/{OWNER}"))["run_id"] == "second"


def test_a_run_killed_on_this_machine_need_not_wait(caplog):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    store = MemoryStore()
    take(store, "first")
    change_owner(store, pid=ended.pid)
    take(store, "first", now=1001.0)
    assert "taking over" in caplog.text


@pytest.mark.parametrize("machine", ["", "another boot pid:[1]"])
def test_process_ids_of_other_machines_say_nothing(machine):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    store = MemoryStore()
    take(store, "first")
    change_owner(store, pid=ended.pid, machine=machine)
    with pytest.raises(StoreError, match="run first"):
        take(store, "second", now=1001.0)


class Clock:
    """Sleeping takes no time here; something may happen meanwhile."""

    def __init__(self, during=lambda slept_s: None):
        self.slept_s = 0.0
        self._during = during

    def sleep(self, seconds):
        self.slept_s += seconds
        self._during(self.slept_s)


def on_another_machine(store):
    take(store, "first", now=1000.0)
    change_owner(store, machine="another boot pid:[1]")


def test_a_run_whose_machine_died_waits_for_its_own_silence(caplog):
    store, clock = MemoryStore(), Clock()
    on_another_machine(store)
    again = take(store, "first", now=1100.0, sleep=clock.sleep)
    assert STALE_S - 100 <= clock.slept_s < STALE_S - 90
    assert again.owner.heartbeat >= 1000 + STALE_S
    assert "waiting for up to 300 s" in caplog.text
    assert "taking over" in caplog.text


def test_a_second_start_of_a_living_run_is_refused_at_its_next_sign_of_life():
    store = MemoryStore()
    on_another_machine(store)

    def beat(slept_s):
        if slept_s >= 30:
            change_owner(store, heartbeat=1130.0)

    clock = Clock(beat)
    with pytest.raises(StoreError, match="run first .* writes here, last alive 0 s ago"):
        take(store, "first", now=1100.0, sleep=clock.sleep)
    assert clock.slept_s == 30


def test_an_owner_whose_clock_is_ahead_is_watched_no_longer_than_any():
    store, clock = MemoryStore(), Clock()
    on_another_machine(store)
    change_owner(store, heartbeat=1e9)
    take(store, "first", now=1100.0, sleep=clock.sleep)
    assert clock.slept_s <= STALE_S + 1


def releasing(store):
    """A clock at whose first look the owner has ended."""

    def release(slept_s):
        if slept_s == LOOK_S:
            store.delete([f"runs/a/{OWNER}"])

    return Clock(release)


def test_a_run_that_was_released_while_another_start_waits_is_taken_at_once():
    store = MemoryStore()
    on_another_machine(store)

    clock = releasing(store)
    take(store, "first", now=1100.0, sleep=clock.sleep)
    assert clock.slept_s < 2 * LOOK_S


def beats_after(store, seconds, heartbeat):
    """A clock on which the owner gives a sign of life, by its own clock."""

    def beat(slept_s):
        if slept_s >= seconds:
            change_owner(store, heartbeat=heartbeat)

    return Clock(beat)


@pytest.mark.parametrize("again", ["second", "first"], ids=["another run", "another start of it"])
@pytest.mark.parametrize("ahead_s", [STALE_S, STALE_S + 1, 86400.0])
def test_a_run_that_lives_is_not_taken_over_by_one_whose_clock_is_ahead(ahead_s, again, caplog):
    store = MemoryStore()
    on_another_machine(store)
    clock = beats_after(store, EVERY_S, 1000.0 + EVERY_S)
    with pytest.raises(StoreError, match="run first .* writes here, last alive 0 s ago"):
        take(store, again, now=1000.0 + ahead_s, sleep=clock.sleep)
    assert EVERY_S <= clock.slept_s < WATCH_S
    assert json.loads(store.read(f"runs/a/{OWNER}"))["run_id"] == "first"
    for text in (
        f"watching memory://memory/runs/a/owner.json for {WATCH_S:.0f} s: run first (process ",
        f"seems silent for {ahead_s:.0f} s; if it gives no sign of life, this run takes its place",
    ):
        assert text in caplog.text


def test_a_run_is_watched_for_longer_than_its_heart_takes_from_beat_to_beat():
    store, clock = MemoryStore(), Clock()
    on_another_machine(store)
    taken = take(store, "second", now=1000.0 + STALE_S, sleep=clock.sleep)
    assert clock.slept_s == pytest.approx(WATCH_S + 0.5)  # and to settle
    assert clock.slept_s > EVERY_S + 2 * LOOK_S
    assert taken.owner.heartbeat == 1000.0 + STALE_S + WATCH_S


def test_one_that_was_outlived_is_not_watched_again():
    store, clock = MemoryStore(), Clock()
    on_another_machine(store)
    take(store, "first", now=1100.0, sleep=clock.sleep)
    assert clock.slept_s < STALE_S - 100 + LOOK_S


def test_two_that_watch_the_same_silence_do_not_both_take_its_place():
    store = MemoryStore()
    on_another_machine(store)

    def third_is_faster(slept_s):
        if slept_s == LOOK_S:
            take(store, "third", now=1000.0 + STALE_S)

    with pytest.raises(StoreError, match="run third .* writes here"):
        take(store, "second", now=1000.0 + STALE_S, sleep=Clock(third_is_faster).sleep)


def test_a_silent_run_that_ends_while_it_is_watched_is_not_waited_for():
    store = MemoryStore()
    on_another_machine(store)

    clock = releasing(store)
    take(store, "second", now=1000.0 + STALE_S, sleep=clock.sleep)
    assert clock.slept_s < 2 * LOOK_S


@pytest.mark.parametrize("silent_s", [1.0, STALE_S, 86400.0])
def test_a_run_killed_on_this_machine_is_not_watched(silent_s):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    store, clock = MemoryStore(), Clock()
    take(store, "first")
    change_owner(store, pid=ended.pid)
    take(store, "second", now=1000.0 + silent_s, sleep=clock.sleep)
    assert clock.slept_s < LOOK_S


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"{}", b'{"run_id": "x"}', b"\xff\xfe"])
def test_a_file_that_nobody_can_read_locks_nobody_out(text):
    store = MemoryStore()
    store.put(f"runs/a/{OWNER}", text)
    clock = Clock()
    assert take(store, "first", sleep=clock.sleep).owner.run_id == "first"
    assert clock.slept_s < LOOK_S


def test_one_that_was_overwritten_after_its_look_learns_it_at_its_heartbeat():
    store = Careless()
    first = take(store, "first")
    store.objects.clear()
    take(store, "second")
    with pytest.raises(StoreError, match="now belongs to run second"):
        first.renew(1001.0)
