import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_lightning.checkpoint.writing.pending import (
    FREE,
    Place,
    Refuse,
    Slot,
    decide,
    superseded,
    supersedes,
)
from tests.checkpoint.writing.writers import job

KINDS = ["step", "epoch", "best"]


def slot(text, number=1):
    """ "" is free; "step up" is being uploaded; a kind other than step must be kept."""
    if not text:
        return FREE
    kind, *up = text.split()
    return Slot(job(number, kind, must_keep=kind != "step"), number, uploading=bool(up))


def slots(*texts):
    return [slot(text, number) for number, text in enumerate(texts, start=1)]


@pytest.mark.parametrize(
    ("held", "new", "place"),
    [
        (["", "", ""], "step", 0),
        (["step up", "step", ""], "step", 2),  # what waits stays good until the copy is complete
        (["step up", "step"], "step", 1),  # newest wins
        (["step", "step"], "step", 0),  # the older of two
        (["best up", "step"], "best", 1),
        (["best", "step", "epoch up"], "best", 1),  # ordinary ones go first
        (["best", "epoch up"], "best", 0),  # the newest of a kind that must be kept
        (["best", "epoch up"], "step", None),
        (["best", "epoch up"], "epoch", None),
        (["best", "epoch", "step up"], "signal", None),
        (["step up", "step up"], "best", None),  # cannot be, but would not wait either
    ],
)
def test_where_a_new_save_goes(held, new, place):
    choice = decide(slots(*held), job(9, new, must_keep=new != "step"))
    assert choice == Place(place) if place is not None else isinstance(choice, Refuse)


def test_a_refusal_names_what_is_in_the_way():
    choice = decide(slots("best", "epoch up"), job(9))
    assert choice.reason == (
        "all 2 snapshot buffers are taken and none may be given up: "
        "step 1 (best) waits, step 2 (epoch) is being uploaded"
    )


@pytest.mark.parametrize(
    ("held", "gone"),
    [
        (["step", "step", ""], {0: 2}),
        (["step up", "step", ""], {}),  # nothing newer than what waits; what is uploaded stays
        (["step", "best up", ""], {0: 2}),  # the newer one holds all that the older one would be read for
        (["best", "step", ""], {}),
        (["best", "best", "best"], {0: 3, 1: 3}),
        (["best", "epoch", "step"], {}),
        (["step", "step up", "step"], {0: 3}),
    ],
)
def test_what_waits_for_nothing_any_more(held, gone):
    assert {index: newer.step for index, newer in superseded(slots(*held)).items()} == gone


@given(
    num_arenas=st.integers(2, 3),
    moves=st.lists(
        st.tuples(st.sampled_from(["save", "start", "store", "miss"]), st.sampled_from(KINDS)), max_size=60
    ),
)
def test_nothing_that_must_be_kept_is_lost_but_to_a_newer_one_of_its_kind(num_arenas, moves):
    held, number, stored, lost = [FREE] * num_arenas, 0, [], []
    accepted = []

    def give_up(index, newer):
        assert not held[index].uploading
        assert supersedes(newer, held[index].job)
        lost.append(held[index].job)
        held[index] = FREE

    for move, kind in moves:
        uploading = [index for index, item in enumerate(held) if item.uploading]
        waiting = [index for index, item in enumerate(held) if item.job and not item.uploading]
        if move == "save":
            new = job(number + 1, kind, must_keep=kind != "step")
            choice = decide(held, new)
            if isinstance(choice, Refuse):
                assert not any(item.job is None for item in held)
                continue
            if held[choice.slot].job is not None:
                give_up(choice.slot, new)
            number += 1
            held[choice.slot] = Slot(new, number)
            accepted.append(new)
        elif move == "start" and waiting and not uploading:
            index = min(waiting, key=lambda index: held[index].number)
            held[index] = Slot(held[index].job, held[index].number, uploading=True)
        elif move == "store" and uploading:
            stored.append(held[uploading[0]].job)
            held[uploading[0]] = FREE
        elif move == "miss" and uploading:
            held[uploading[0]] = Slot(held[uploading[0]].job, held[uploading[0]].number)
        for index, newer in superseded(held).items():
            give_up(index, newer)
        waits = [item.job.kind for item in held if item.job and not item.uploading]
        assert len(waits) == len(set(waits))  # one of each kind waits at most

    still_held = [item.job for item in held if item.job]
    assert sorted(x.step for x in stored + lost + still_held) == [x.step for x in accepted]
    if accepted:
        assert accepted[-1] not in lost
    for kind in KINDS:
        of_kind = [x for x in accepted if x.kind == kind]
        if of_kind and kind != "step":
            assert of_kind[-1] not in lost
