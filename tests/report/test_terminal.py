"""Bars in the terminal: one per logged step, or grouped without averaging a spike away."""

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from dflash_lightning.report.run import Run
from dflash_lightning.report.terminal import Bar, describe, draw_bars, make_bars
from dflash_lightning.report.verdict import Verdict


def run_of(losses, *, every=1, skipped=(), name="mine"):
    steps = np.arange(1, len(losses) + 1) * float(every)
    return Run(
        name=name,
        path="runs/mine",
        steps=steps,
        values={"train/loss": np.array(losses, dtype=np.float64)},
        times=np.full(len(losses), np.nan),
        val_steps=np.empty(0),
        validation={},
        skipped=[{"step": step} for step in skipped],
        notes=["a [red]note[/red]"],
    )


def bar(mean, *, highest=None, steps=(1, 1), remark=""):
    return Bar(steps=steps, mean=mean, highest=mean if highest is None else highest, remark=remark)


@pytest.mark.parametrize(
    ("ascii_only", "lines"),
    [
        (
            False,
            [
                "   1         1",
                "   2       1.5  ███▋",
                "   3         2  ███████▎",
                "   4       2.1  ████████",
            ],
        ),
        (
            True,
            ["   1         1", "   2       1.5  ####", "   3         2  #######", "   4       2.1  ########"],
        ),
    ],
)
def test_a_bar_is_as_long_as_its_loss_is_high(ascii_only, lines):
    bars = [bar(loss, steps=(i, i)) for i, loss in enumerate((1.0, 1.5, 2.0, 2.1), start=1)]
    drawn = draw_bars(bars, width=26, ascii_only=ascii_only)
    assert drawn[1:] == lines
    assert drawn[0].endswith("bars from 1 to 2.1")


def test_a_group_shows_its_mean_and_pales_up_to_its_highest():
    drawn = draw_bars([bar(1.0), bar(1.0, highest=2.0), bar(1.5)], width=26, ascii_only=False)
    assert drawn[2].endswith("░" * 8)
    assert "pale up to the highest of a group" in drawn[0]


@given(losses=st.lists(st.floats(0.1, 1e3), min_size=1, max_size=200), limit=st.integers(1, 40))
def test_groups_cover_every_step_once_and_keep_the_highest(losses, limit):
    bars = make_bars(run_of(losses), {}, limit=limit)
    assert len(bars) == min(limit, len(losses))
    assert [step for b in bars for step in range(b.steps[0], b.steps[1] + 1)] == [*range(1, len(losses) + 1)]
    assert max(b.highest for b in bars) == max(losses)


def test_a_row_covers_all_steps_since_the_one_before():
    bars = make_bars(run_of([3, 2, 1], every=10, skipped=[13]), {21: "mix"}, limit=None)
    assert [b.remark for b in bars] == ["", "skipped", "<- mix"]


@given(width=st.integers(50, 140), losses=st.lists(st.floats(0.1, 1e3), min_size=1, max_size=30))
def test_no_bar_is_wider_than_the_terminal(width, losses):
    bars = make_bars(run_of(losses, skipped=[1]), {1: "mix"}, limit=None)
    assert max(map(len, draw_bars(bars, width=width, ascii_only=False)[1:])) <= width


def test_no_finite_loss_is_said():
    assert draw_bars(make_bars(run_of([np.nan]), {}, limit=9), width=80, ascii_only=False) == [
        "no finite loss in these steps"
    ]


def test_the_text_holds_verdicts_and_notes_and_no_markup_is_read_into_it():
    verdict = Verdict("instability", "it [bold]jumped[/bold]", ["norm 12"], [2])
    text = describe(run_of([1, 2, 1], name="[b]x"), [verdict], width=80, ascii_only=True, every_step=True)
    file = io.StringIO()
    Console(file=file, width=80).print(text)
    shown = file.getvalue()
    for words in (
        "[b]x",
        "INSTABILITY  It [bold]jumped[/bold]",
        "- norm 12",
        "look at step 2",
        "note: a [red]note[/red]",
    ):
        assert words in shown
    assert "\x1b" not in shown  # a file is not a terminal
