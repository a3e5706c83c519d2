"""What the shared counter costs: choose() from many threads at once, in CPU time, against a step."""

import threading
import time

from dflash_lightning.target.dispatch import Dispatcher

STEP = 0.1
"""Seconds of a short optimizer step."""


def lock_share(*, threads: int, devices: int, batches: int, calls: int = 5000) -> float:
    """Share of a step that dealing its `batches` costs, while so many threads want the lock all the time."""
    dispatcher, tokens, room = Dispatcher(), list(range(devices)), [True] * devices
    start = threading.Barrier(threads + 1)

    def deal() -> None:
        start.wait()
        for _ in range(calls):
            dispatcher.choose("round_robin", pending_tokens=tokens, room=room)

    workers = [threading.Thread(target=deal) for _ in range(threads)]
    for worker in workers:
        worker.start()
    start.wait()
    begun = time.process_time()
    for worker in workers:
        worker.join()
    return (time.process_time() - begun) / (threads * calls) * batches / STEP
