"""Case 7: an error in the background is told once, and the next save works.

Raised once at the next step, on all ranks, or tolerated: tests/callbacks/test_s3_checkpoint.py and
tests/ranks/test_checkpoints.py.
"""

import pytest
import torch

from dflash_lightning.checkpoint.stores.fault_script import Fault
from dflash_lightning.checkpoint.stores.memory import MemoryStore
from dflash_lightning.checkpoint.writing.attempt import Target
from dflash_lightning.checkpoint.writing.events import Failed
from tests.checkpoint.writing.writers import (
    events_until,
    faulty,
    folder_target,
    job,
    kinds,
    make_writer,
    state_at,
)


@pytest.mark.parametrize("kind", ["denied", "missing", "clock", "conflict", "other"])
def test_case_07_what_cannot_pass_by_itself_is_given_up_at_once_and_the_next_save_works(kind, caplog):
    writer = faulty(Fault("open", kind=kind))
    writer.submit(job(1), state_at(1))
    (event,) = events_until(writer, Failed)
    assert (event.kind, event.will_retry) == (kind, False)
    assert "the checkpoint of step 1 (step) is given up: scripted: open of ck" in caplog.text
    assert writer.unfinished == []
    for step in (2, 3):  # none of them hears of it again
        assert writer.submit(job(step), state_at(step)).accepted
        assert writer.flush(30.0) == []
        assert kinds(writer.poll()) == [("Durable", step)]
    assert writer.counts.given_up == 1
    writer.close()


def test_case_07_an_error_that_is_none_of_the_store_is_told_without_secrets():
    def broken(store, prefix, job, write):
        raise KeyError("http://me:hunter22@host")

    writer = make_writer(Target(lambda: (MemoryStore(), ""), broken))
    writer.submit(job(1), state_at(1))
    (event,) = events_until(writer, Failed)
    assert (event.kind, event.message) == ("other", "KeyError: 'http://***@host'")
    writer.close()


def test_case_07_a_state_that_cannot_be_saved_harms_no_later_one(tmp_path):
    writer = make_writer(folder_target(tmp_path))
    with pytest.raises(ValueError, match="cannot be saved"):
        writer.submit(job(1), {"bad": lambda: 0, "weight": torch.zeros(1)})
    assert writer.submit(job(2), state_at(2)).accepted
    assert writer.flush(30.0) == []
    writer.close()
