"""Errors in any thread, and how a pass ends."""

import logging
import threading
import traceback

import pytest

from dflash_lightning.target import pipeline_pass
from tests.target.pipelines import (
    PATIENCE,
    Jittery,
    Toy,
    everything,
    pipeline_of,
    prefetch_threads,
    square,
    until,
)
from tests.target.pipelines import no_thread_is_left as no_thread_is_left

# --- errors


def explode_at(number):
    def explode(batch):
        if batch.number == number:
            raise FloatingPointError("the target broke")
        return batch.number

    return explode


@pytest.mark.parametrize("delivery", ["in_order", "ready_first"])
def test_what_a_worker_raises_is_raised_in_training(delivery):
    pipeline = pipeline_of([explode_at(4)] * 2, delivery=delivery, names=["cuda:4", "cuda:5"])
    with pytest.raises(FloatingPointError, match="the target broke") as caught:
        everything(pipeline, [Toy(i, 7) for i in range(9)], [9])
    text = "".join(traceback.format_exception(caught.value))
    assert "in explode" in text  # its own traceback
    assert "cuda:4, batch 4 of this pass, bucket 1, 7 padded tokens" in text
    assert "(in thread 'prefetch cuda:4')" in text


def test_an_error_is_not_kept_back_by_batches_that_are_ready():
    pipeline = pipeline_of([square, explode_at(1)], depth=4)
    with pipeline.run([Toy(i) for i in range(4)], [4]) as pairs:
        until(lambda: len(prefetch_threads()) == 1 or pipeline.counters().devices[0].ready_batches == 2)
        until(lambda: not any(t.name == "prefetch device 1" for t in prefetch_threads()))
        with pytest.raises(FloatingPointError):
            next(pairs)


def test_what_the_source_raises_is_raised_in_training():
    def source():
        yield Toy(0)
        raise OSError("the store is gone")

    pipeline = pipeline_of([square])
    with pytest.raises(OSError, match="the store is gone") as caught:
        everything(pipeline, source(), [4])
    text = "".join(traceback.format_exception(caught.value))
    assert "in source" in text
    assert "(in thread 'prefetch feed')" in text


@pytest.mark.parametrize("error", [StopIteration, SystemExit, KeyboardInterrupt, GeneratorExit])
def test_no_exception_passes_for_the_end(error):
    def leave(batch):
        raise error

    expected = RuntimeError if error is StopIteration else error
    with pytest.raises(expected):
        everything(pipeline_of([leave]), [Toy(0)], [1])


@pytest.mark.parametrize(
    ("batches", "windows", "message"),
    [
        (3, [2, 2], "ended in optimizer window 1 of 2: it must give 4 batches"),
        (5, [2, 2], "more than the 4 batches of its optimizer windows"),
    ],
)
def test_a_source_of_another_length_is_refused(batches, windows, message):
    with pytest.raises(ValueError, match=message):
        everything(pipeline_of([square]), [Toy(i) for i in range(batches)], windows)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: pipeline_of([]), "needs at least one worker"),
        (lambda: pipeline_of([square], depth=0), "depth 0 means no pipeline"),
        (lambda: pipeline_of([square]).set_depth(0), "depth 0 means no pipeline"),
    ],
)
def test_pipelines_that_make_no_sense_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


# --- the end


@pytest.mark.parametrize("taken", [0, 1, 5])
def test_a_pass_left_early_ends_its_threads(taken):
    pipeline = pipeline_of([Jittery(1), Jittery(2)], depth=2)
    with pipeline.run((Toy(i) for i in range(10**6)), [2] * 500_000) as pairs:
        for _ in range(taken):
            next(pairs)
        assert len(prefetch_threads()) == 3
    assert not prefetch_threads()


def test_a_generator_over_a_pass_closes_it_when_dropped():
    pipeline = pipeline_of([square])

    def pairs():
        with pipeline.run((Toy(i) for i in range(99)), [99]) as running:
            yield from running

    iterator = pairs()
    next(iterator)
    assert prefetch_threads()
    del iterator
    assert not prefetch_threads()


def test_a_new_pass_closes_the_one_before():
    pipeline = pipeline_of([square])
    old = pipeline.run([Toy(i) for i in range(9)], [9]).__enter__()
    next(old)
    assert len(everything(pipeline, [Toy(i) for i in range(3)], [3])) == 3
    with pytest.raises(RuntimeError, match="closed before its end"):
        next(old)


def test_a_source_that_blocks_for_ever_is_left_behind_and_named(monkeypatch, caplog):
    monkeypatch.setattr(pipeline_pass, "CLOSE_SECONDS", 0.05)
    blocked = threading.Event()

    def source():
        yield Toy(0)
        assert blocked.wait(PATIENCE)

    pipeline = pipeline_of([square])
    with caplog.at_level(logging.WARNING), pipeline.run(source(), [2]) as pairs:
        next(pairs)
    assert "still at a batch: prefetch feed" in caplog.text
    blocked.set()
    until(lambda: not prefetch_threads())


def test_an_idle_pipeline_keeps_no_states_alive():
    import weakref

    class States:
        pass

    alive = []

    def compute(batch):
        states = States()
        alive.append(weakref.ref(states))
        return states

    with pipeline_of([compute]).run([Toy(0)], [1]) as pairs:
        next(pairs)
        until(lambda: not prefetch_threads())
        assert alive[0]() is None
