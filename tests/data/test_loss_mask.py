import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from dflash_lightning.data.conversations import RowError
from dflash_lightning.data.loss_mask import require_supervisable, supervise
from dflash_lightning.data.template import ChatFormat
from tests.data import chats
from tests.data.chats import END, chat, chat_format

TWO_TURNS = chat("Hello", "Hi there!", "Bye", "See you.")
BOTH = ["Hi there!" + END, "See you." + END]

CHATML = chat_format(chats.CHATML)
MARKED = chat_format(chats.MARKED)


def supervised_texts(given_chat, form, **how):
    """What the mask covers, as text, one string per run of ones."""
    ids, mask = supervise(given_chat, form, **how)
    assert len(ids) == len(mask)
    runs = [[]]
    for token, wanted in zip(ids, mask, strict=True):
        if wanted:
            runs[-1].append(token)
        elif runs[-1]:
            runs.append([])
    return [form.tokenizer.decode(run) for run in runs if run]


@pytest.mark.parametrize(
    "template",
    [
        chats.CHATML,
        chats.MARKED,
        chats.MARKS_WITHOUT_STOP,  # the stop token is still learned: the target generates it
        chats.MARKS_WITH_LINE_BREAK,  # the line break after it is not: the target has stopped
        chats.DEFAULT_SYSTEM,
        chats.STRIPS_THINKING,  # nothing to strip here
    ],
)
def test_every_answer_with_its_stop_token_is_supervised_and_nothing_else(template):
    assert supervised_texts(TWO_TURNS, chat_format(template)) == BOTH


@pytest.mark.parametrize("form", [CHATML, MARKED])
def test_the_first_supervised_token_is_the_first_after_the_generation_prompt(form):
    ids, mask = supervise(TWO_TURNS, form)
    prompt = form.encode(form.render(TWO_TURNS.messages[:1], prompt=True))
    assert ids[: len(prompt)] == prompt
    assert mask[: len(prompt) + 1] == [0] * len(prompt) + [1]


@pytest.mark.parametrize("form", [CHATML, MARKED])
def test_last_turn_only(form):
    assert supervised_texts(TWO_TURNS, form, turns="last") == BOTH[1:]


def test_an_answer_may_follow_at_once_where_the_template_has_no_headers():
    assert supervised_texts(TWO_TURNS, chat_format(chats.NO_HEADERS)) == [" " + text for text in BOTH]


def test_stripped_reasoning_of_an_earlier_answer_is_refused_and_its_last_answer_is_not():
    form = chat_format(chats.STRIPS_THINKING)
    thinking = chat("Hello", "<think>greet</think>Hi", "Bye", "<think>leave</think>See you.")
    with pytest.raises(
        RowError, match="prefixes do not agree .*up to message 2 gives other tokens when more follows"
    ):
        supervise(thinking, form)
    assert supervised_texts(thinking, form, turns="last") == ["<think>leave</think>See you." + END]


def test_an_empty_think_block_is_part_of_the_answer_only_if_the_target_is_asked_with_it():
    with pytest.raises(RowError, match="text to the answer that is not in its generation prompt .*<think>"):
        supervise(chat("Hello", "Hi"), chat_format(chats.ADDS_THINKING))
    asked = chat_format(chats.ADDS_THINKING, enable_thinking=False)
    assert supervised_texts(chat("Hello", "Hi"), asked) == ["Hi" + END]


def test_reasoning_that_the_row_itself_holds_is_supervised():
    form = chat_format(chats.ADDS_THINKING)
    assert supervised_texts(chat("Hello", "<think>\nHm.</think>Hi"), form) == ["<think>\nHm.</think>Hi" + END]


@pytest.mark.parametrize(
    ("bad", "template", "message"),
    [
        (chat("Hello", f"Hi{END} and more"), chats.CHATML, "the answer holds a stop token before its end"),
        (chat("Hello", f"Hi{END} and more"), chats.MARKED, "the answer holds a stop token before its end"),
        (
            chat("Hello", "Hi"),
            chats.MARKS_WITH_HEADER,
            "marks do not start right after the generation prompt",
        ),
        (
            chat("Hello", "Hi"),
            chats.NO_STOP,
            r"does not end with a stop token .*stop ids \[258\].*--stop-token",
        ),
        (chat("Hello", "Hi", system="Be"), chats.NO_SYSTEM, "the template refuses the chat .*no system role"),
    ],
)
def test_what_cannot_be_told_for_certain_is_refused(bad, template, message):
    with pytest.raises(RowError, match=message):
        supervise(bad, chat_format(template))


def test_a_template_that_never_stops_is_one_error_and_not_a_skipped_row_each():
    with pytest.raises(ValueError, match="template cannot be used: .* does not end with a stop token"):
        require_supervisable(chat_format(chats.NO_STOP))
    require_supervisable(chat_format(chats.ADDS_THINKING))  # some rows may hold their own reasoning


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="<"), max_size=12)


@settings(deadline=None, max_examples=50)
@given(pairs=st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=4))
def test_marks_and_prefixes_find_the_same_tokens(pairs):
    many = chat(*(text for pair in pairs for text in pair))
    assert supervise(many, MARKED) == supervise(many, CHATML)
    expected = [MARKED.tokenizer.encode(answer + END, add_special_tokens=False) for _, answer in pairs]
    ids, mask = supervise(many, CHATML)
    assert [i for i, wanted in zip(ids, mask, strict=True) if wanted] == sum(expected, [])


def test_text_that_agrees_is_not_enough():
    """The prompt ends in a space that the tokenizer joins to the answer: no engine ever sees that token."""
    words = Tokenizer(models.BPE({"Q": 0, ":": 1, " ": 2, "a": 3, " a": 4, "!": 5}, [(" ", "a")]))
    joining = PreTrainedTokenizerFast(tokenizer_object=words, eos_token="!")
    template = "{% for m in messages %}{{ 'Q: ' if m.role == 'user' else m.content + '!' }}{% endfor %}"
    form = ChatFormat(tokenizer=joining, template=template, stop_ids=frozenset({5}))
    assert joining.decode(form.encode("Q: a")[-1:]) == " a"
    with pytest.raises(RowError, match="prefixes do not agree"):
        supervise(chat("?", "aa"), form)
