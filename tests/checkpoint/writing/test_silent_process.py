"""An uploader process that cannot even start here: checkpoints are stored all the same."""

import logging

import pytest

from dflash_lightning.checkpoint.writing import writer_process
from dflash_lightning.checkpoint.writing.events import Durable
from dflash_lightning.checkpoint.writing.writer_thread import ThreadChannel
from tests.checkpoint.writing.writers import (
    PATIENCE_S,
    events_until,
    folder_target,
    job,
    make_writer,
    state_at,
    stored_steps,
)


@pytest.mark.parametrize(
    "start",
    [
        "raise IndexError('list index out of range')",  # a mistake of ours on a system we never saw
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",  # no memory for a second interpreter
        pytest.param("import no_such_module", marks=pytest.mark.slow),
    ],
)
def test_a_process_that_never_says_a_word_is_replaced_by_a_thread(start, folder, monkeypatch, caplog):
    monkeypatch.setattr(writer_process, "_START", start)
    writer = make_writer(folder_target(folder), shared=True)
    with caplog.at_level(logging.WARNING):
        assert writer.submit(job(1, must_keep=True), state_at(1)).accepted
        events_until(writer, Durable)
    assert isinstance(writer.channel, ThreadChannel)
    assert "process ended 3 times before it had stored anything" in caplog.text
    assert "A thread of the trainer stores the checkpoints from here on" in caplog.text
    assert writer.submit(job(2), state_at(2)).accepted
    assert writer.flush(PATIENCE_S) == []
    writer.close()
    assert stored_steps(folder) == [1, 2]
    assert writer.counts.restarts == 3
