import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib import pyplot as plt

from dflash_lightning.decoding.acceptance import pooled
from dflash_lightning.decoding.decoded import Decoded
from dflash_lightning.decoding.stage_times import StageTime
from dflash_lightning.evaluation.as_json import as_values
from dflash_lightning.evaluation.figures import histogram, parts, slot_shares
from dflash_lightning.evaluation.finite import finite
from dflash_lightning.evaluation.measure import Measured, Method, Wanted, group_prompts
from dflash_lightning.evaluation.pictures import draw_evaluation
from dflash_lightning.evaluation.result import ChatFacts, evaluation
from dflash_lightning.evaluation.table import as_text


def test_rounds_by_tokens_and_slots():
    counts = histogram([[1, 3, 3], [2], []])
    assert counts == (1, 1, 2)
    assert slot_shares(counts) == (0.75, 0.5)
    assert histogram([[]]) == ()
    assert slot_shares(()) == ()


@settings(deadline=None, max_examples=50)
@given(st.lists(st.lists(st.integers(1, 6), max_size=8), min_size=1, max_size=4))
def test_slots_add_up_to_the_acceptance_length(rounds):
    if any(rounds):
        assert 1 + sum(slot_shares(histogram(rounds))) == pytest.approx(pooled(rounds))


@settings(deadline=None, max_examples=50)
@given(
    prompts=st.lists(st.tuples(st.integers(1, 9), st.sampled_from("ab")), min_size=1, max_size=20),
    size=st.integers(1, 5),
)
def test_groups_hold_every_prompt_once_and_one_category_each(prompts, size):
    lengths, categories = zip(*prompts, strict=True)
    groups = group_prompts(lengths, categories, size)
    assert sorted(n for group in groups for n in group) == list(range(len(prompts)))
    assert all(1 <= len(group) <= size and len({categories[n] for n in group}) == 1 for group in groups)
    assert len(groups) == sum(-(-categories.count(name) // size) for name in set(categories))


WANTED = Wanted(prompts=[[5, 6], [7], [8]], categories=["maths", "chat", "maths"], max_new_tokens=8)


def method(name, rounds, seconds, *, wrong=()):
    one = Measured(Method(name))
    for number, counts in enumerate(rounds):
        tokens = tuple(range(1 + sum(counts)))
        one.decoded[number] = Decoded(tokens[:-1] + (99,) if number in wrong else tokens, tuple(counts))
    one.seconds.update(seconds)
    one.times.seconds.update({"prefill": 1.0, "draft": 1.0, "verify": 2.0})
    one.times.calls.update({"prefill": 4, "draft": 0 if name == "plain" else 10, "verify": 16})
    return one


PLAIN = method("plain", [[1] * 6, [1] * 3, []], {"maths": 4.0, "chat": 2.0})
CHAIN_A = method("chain A", [[2, 4], [3], []], {"maths": 2.0, "chat": 4.0}, wrong=[1])
CHAIN_B = method("chain B", [[3, 3], [2, 1], []], {"maths": 2.0, "chat": 2.0})


CHATS = ChatFacts(template="0123456789abcdef", arguments={"enable_thinking": False}, stop_ids=(1, 7))


def some_evaluation(*measured, drafters):
    facts = {"target": "toy", "dtype": "float32", "device": "cpu", "block_size": 4, "chats": CHATS}
    return evaluation(measured, WANTED, drafters=drafters, **facts)


def test_each_method_is_set_beside_plain_decoding_of_the_same_prompts():
    whole, chat, maths = parts([PLAIN, CHAIN_A], WANTED, block_size=4)
    assert (whole.prompts, chat.prompts, maths.prompts) == (3, 1, 2)
    assert (chat.category, maths.category) == ("chat", "maths")
    assert whole.of("chain A").acceptance.pooled == 3.0
    assert whole.of("plain").speed_up == 1.0
    assert whole.of("chain A").speed_up == pytest.approx(
        1.0
    )  # twice as fast in one, half as fast in the other
    assert maths.of("chain A").speed_up == pytest.approx(2.0)
    assert chat.of("chain A").speed_up == pytest.approx(0.5)
    assert whole.of("chain A").equal_texts == 2
    assert whole.of("chain A").stages["draft"] == StageTime(0.25, 1.0, 10)
    assert whole.of("chain A").tokens_per_s == pytest.approx(12 / 6.0)


def test_the_page_says_it_all():
    found = some_evaluation(PLAIN, CHAIN_A, CHAIN_B, drafters={"A": "one/drafter", "B": "other"})
    text = as_text(found)
    for line in (
        "drafter A  one/drafter",
        'chats      template 0123456789ab, {"enable_thinking": false}; ids that end an answer: 1, 7',
        "method         tau pooled  tau mean  first 32  tokens/s  speed-up  drafting  own text",
        "chain A              3.00      3.00      3.00       2.0      1.00       25%       2/3",
        "prompt lookup",
        "Milliseconds per call\n           prefill  draft  verify\n",
        "  plain      250.0      -   125.0",  # it never drafts
        "  chain A    250.0  100.0   125.0",
        "B against A, the same prompts",
        "too few prompts",
        "2 prompts made rounds under both. Fewer than 6 decide nothing",
        "  maths           2",
    ):
        assert line in text
    assert ["slot", "1", "2", "3"] in [line.split() for line in text.splitlines()]
    values = as_values(found)
    assert values["all"]["methods"]["chain A"]["tau_pooled"] == 3.0
    assert values["categories"]["chat"]["methods"]["chain B"]["tau_mean"] == 1.5
    assert values["compared"]["chain"]["difference"] == pytest.approx(9 / 4 - 3.0)
    assert values["compared"]["chain"]["prompts"] == 2
    assert json.loads(json.dumps(values))["chats"] == {
        "template": "0123456789abcdef",
        "arguments": {"enable_thinking": False},
        "stop_ids": [1, 7],
    }


def test_stages_are_timed_over_all_categories_and_only_given_there():
    values = as_values(some_evaluation(PLAIN, CHAIN_A, drafters={"": "d"}))
    whole = values["all"]["methods"]["chain A"]
    stages = {
        "stage_shares": {"prefill": 0.25, "draft": 0.25, "verify": 0.5},
        "stage_seconds": {"prefill": 1.0, "draft": 1.0, "verify": 2.0},
        "stage_calls": {"prefill": 4, "draft": 10, "verify": 16},
    }
    assert stages.items() <= whole.items()
    for part in values["categories"].values():
        assert set(whole) - set(part["methods"]["chain A"]) == set(stages)


def compared_over(prompts, better=1):
    """A and B over so many prompts, of which B wins all by so many tokens."""
    wanted = Wanted(prompts=[[5]] * prompts, categories=["c"] * prompts, max_new_tokens=8)
    measured = [
        method(name, [[rounds] * 2] * prompts, {"c": 1.0})
        for name, rounds in (("plain", 1), ("chain A", 2), ("chain B", 2 + better))
    ]
    facts = {"target": "toy", "dtype": "float32", "device": "cpu", "block_size": 4, "chats": CHATS}
    return evaluation(measured, wanted, drafters={"A": "a", "B": "b"}, **facts)


@pytest.mark.parametrize(
    ("prompts", "better", "row", "why"),
    [
        (1, 1, ["chain", "+1.000", "-", "too", "few", "prompts", "1.40"], "1 prompt made rounds under both."),
        (5, 1, None, "5 prompts made rounds under both. Fewer than 6 decide nothing"),
        (6, 1, ["chain", "+1.000", "+1.000", "to", "+1.000", "1.40"], ""),
        (6, 0, ["chain", "+0.000", "+0.000", "to", "+0.000", "may", "be", "chance", "1.00"], ""),
    ],
)
def test_a_comparison_says_how_sure_it_is(prompts, better, row, why):
    found = compared_over(prompts, better)
    text = as_text(found)
    assert row is None or row in [line.split() for line in text.splitlines()]
    assert why in text
    assert ("decide nothing" in text) == bool(why)
    values = json.loads(json.dumps(as_values(found), allow_nan=False))["compared"]["chain"]
    assert (values["prompts"], values["decided"]) == (prompts, prompts >= 6 and better > 0)
    assert (values["low"] is None) == (prompts < 2)


AWKWARD = ["a $\\frac$ b", "$x$", "50 $ and 60 $", "$", "\\", "a_b^c", "{%", "<&>", "{0}"]


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_pictures_are_drawn_whatever_the_names(tmp_path, suffix):
    wanted = Wanted(prompts=[[5]] * len(AWKWARD), categories=AWKWARD, max_new_tokens=8)
    rounds, seconds = [[2]] * len(AWKWARD), dict.fromkeys(AWKWARD, 1.0)
    measured = [method("plain", rounds, seconds), method("chain", rounds, seconds)]
    facts = {"target": "to $\\frac$ y", "dtype": "float32", "device": "cpu", "block_size": 4, "chats": CHATS}
    found = evaluation(measured, wanted, drafters={"": "runs/a $\\frac$ b"}, **facts)
    draw_evaluation(found, tmp_path / f"page.{suffix}")
    assert (tmp_path / f"page.{suffix}").stat().st_size > 10_000


def test_pictures_are_drawn(tmp_path):
    draw_evaluation(some_evaluation(PLAIN, CHAIN_A, drafters={"": "one"}), tmp_path / "page.png")
    assert (tmp_path / "page.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(("budgets", "many"), [(1, False), (4, True)])
@pytest.mark.parametrize("committed", [1, 4])
def test_no_bar_or_line_runs_through_a_legend(tmp_path, monkeypatch, budgets, many, committed):
    """All rounds alike: a bar in the first or in the last place reaches the top, or the line of all slots."""
    names = [
        f"{kind} {label}"
        for kind in ("chain", *("tree 100", "tree 200", "tree 400")[: budgets - 1])
        for label in "AB"
    ]
    prompts = dict.fromkeys("ab" if many else "a", 1.0)
    wanted = Wanted(prompts=[[5]] * len(prompts), categories=list(prompts), max_new_tokens=8)
    measured = [method("plain", [[1] * 8] * len(prompts), prompts)]
    measured += [method(name, [[committed] * 2] * len(prompts), prompts) for name in names]
    facts = {"target": "toy", "dtype": "float32", "device": "cpu", "block_size": 4, "chats": CHATS}
    drawn = []
    monkeypatch.setattr(plt, "close", drawn.append)
    draw_evaluation(
        evaluation(measured, wanted, drafters={"A": "a", "B": "b"}, **facts), tmp_path / "page.png"
    )
    monkeypatch.undo()
    (figure,) = drawn
    panels = [axis for axis in figure.axes if axis.get_title().startswith("Rounds ")]
    assert len(panels) == 2
    for axis in panels:
        legend = axis.get_legend().get_window_extent()
        shown = [*axis.patches, *axis.lines]
        assert shown
        assert not [one for one in shown if legend.overlaps(one.get_window_extent())]
        assert axis.bbox.x0 <= legend.x0 <= legend.x1 <= axis.bbox.x1  # and it stays in its own panel
    plt.close(figure)


def test_a_method_that_made_no_round_has_a_dash_and_a_null():
    empty = method("plain", [[], [], []], {"maths": 1.0, "chat": 1.0})
    found = some_evaluation(
        empty, method("chain", [[], [], []], {"maths": 1.0, "chat": 1.0}), drafters={"": "d"}
    )
    assert math.isnan(found.whole.of("chain").acceptance.pooled)
    assert "chain                   -         -         -" in as_text(found)
    assert as_values(found)["all"]["methods"]["chain"]["tau_pooled"] is None


def test_comparing_drafters_that_made_no_round_ends_no_run():
    three = [method(name, [[], [], []], {"maths": 1.0, "chat": 1.0}) for name in ("plain", "c A", "c B")]
    found = some_evaluation(*three, drafters={"A": "a", "B": "b"})
    assert "0 prompts made rounds under both" in as_text(found)
    values = json.loads(json.dumps(as_values(found), allow_nan=False))
    assert (values["compared"]["c"]["difference"], values["compared"]["c"]["decided"]) == (None, False)


def test_a_figure_that_is_not_finite_is_null_wherever_it_stands():
    values = {
        "a": math.nan,
        "b": [math.inf, 1.5, (-math.inf, 2)],
        "c": {"d": math.nan, "e": "NaN"},
        "f": True,
    }
    expected = {"a": None, "b": [None, 1.5, [None, 2]], "c": {"d": None, "e": "NaN"}, "f": True}
    assert finite(values) == expected
