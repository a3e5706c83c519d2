"""Case 5: rank 0 writes, no rank waits for the store, and no background thread takes part in a collective.

Whole runs on two ranks: tests/ranks/test_checkpoints.py and its neighbours.
"""

import ast
import threading
from pathlib import Path

import pytest

import dflash_lightning.checkpoint
from tests.checkpoint.writing.writers import PATIENCE_S, job, state_at

COLLECTIVES = {"barrier", "broadcast", "broadcast_object_list", "reduce", "all_reduce", "reduce_scatter"}
COLLECTIVES |= {"all_gather", "all_gather_object", "gather", "scatter", "all_to_all", "monitored_barrier"}
FILES = sorted(Path(dflash_lightning.checkpoint.__path__[0]).rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_case_05_no_collective_in_what_runs_in_the_background(path):
    names = {node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}
    assert not names & COLLECTIVES


def test_case_05_ranks_that_meet_at_every_step_go_on_while_the_store_takes_nothing(writer, gate):
    """A save that waited for the store would hold both up at the next step, and this test would not end."""
    meet, reached = threading.Barrier(2, timeout=PATIENCE_S), [0, 0]

    def train(rank):
        for step in range(1, 31):
            if rank == 0 and step % 3 == 0:
                assert writer.submit(job(step), state_at(step)).accepted
            meet.wait()
            reached[rank] = step

    ranks = [threading.Thread(target=train, args=(rank,)) for rank in (0, 1)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    assert reached == [30, 30]
    assert writer.counts.durable == 0
    gate.open.set()
    assert writer.flush(PATIENCE_S) == []
    assert gate.steps[-1] == 30
