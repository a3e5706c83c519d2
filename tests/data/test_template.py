import pickle
from dataclasses import replace

import pytest
from transformers import PreTrainedTokenizerFast

from dflash_lightning.data.conversations import RowError
from dflash_lightning.data.loss_mask import supervise
from dflash_lightning.data.template import probe_format
from tests.data import chats
from tests.data.chats import chat, chat_format


def test_the_probe_finds_what_asks_for_an_answer():
    form = chat_format(chats.CHATML)
    assert form.tokenizer.decode(list(form.generation_prompt)) == "<|im_start|>assistant\n"
    assert form.forced_start == ()


def test_the_probe_finds_what_the_template_puts_before_every_answer():
    form = chat_format(chats.ADDS_THINKING)
    assert form.tokenizer.decode(list(form.forced_start)) == "<think>\n\n</think>\n\n"
    assert chat_format(chats.ADDS_THINKING, enable_thinking=False).forced_start == ()


def test_a_space_before_an_answer_is_the_targets_own():
    assert chat_format(chats.NO_HEADERS).forced_start == ()


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (chats.NO_ASSISTANT, "the generation prompt is not how the rendered answer starts"),
        (chats.NO_ASSISTANT.partition("{% if add")[0], "the template renders no assistant turn"),
        (
            chats.NO_GENERATION_PROMPT,
            r"no generation prompt: it starts an answer with '<\|im_start\|>assistant",
        ),
        (
            chats.CHATML + "{% if not add_generation_prompt and messages|length == 1 %}!{% endif %}",
            "asking for an answer changes the tokens of the question before it",
        ),
        ("{% for m in messages %}", "the template refuses the chat .*TemplateSyntaxError"),
        ("{% if add_generation_prompt %}now: {% endif %}{{ messages }}", "the generation prompt is not how"),
    ],
)
def test_a_template_without_usable_assistant_turns_is_refused(template, message):
    with pytest.raises(ValueError, match=message) as caught:
        chat_format(template)
    assert "--chat-template FILE" in str(caught.value)


def test_a_tokenizer_without_offsets_is_refused():
    form = chat_format()

    class Slow(PreTrainedTokenizerFast):
        is_fast = False

    slow = Slow(tokenizer_object=form.tokenizer.backend_tokenizer)
    with pytest.raises(ValueError, match="Slow cannot say where its tokens start: a fast tokenizer"):
        probe_format(replace(form, tokenizer=slow))


def test_marks_are_recognised_however_they_are_spaced():
    assert chat_format(chats.MARKED).has_marks
    assert chat_format(chats.MARKED.replace("{% generation %}", "{%- generation -%}")).has_marks
    assert not chat_format(chats.CHATML).has_marks


def test_a_chat_that_the_template_refuses_is_a_row_error():
    with pytest.raises(RowError, match="the template refuses the chat .*TemplateError: no system role"):
        chat_format(chats.NO_SYSTEM).render(chat("Hello", "Hi", system="Be brief.").messages)


@pytest.mark.parametrize("half", ["\ud83d", "a \udc00", "\ude42\ud83d"])  # in the wrong order, too
@pytest.mark.parametrize("template", [chats.CHATML, chats.MARKED])
@pytest.mark.parametrize("turn", [0, 1])
def test_half_a_surrogate_pair_is_a_row_error_however_it_is_tokenised(half, template, turn):
    texts = ["Hello", "Hi"]
    texts[turn] = half
    form = chat_format(template)
    for encode in (form.encode, form.encode_with_offsets):
        with pytest.raises(RowError, match=r"the chat holds half of a surrogate pair, .* \('\\ud"):
            encode(form.render(chat(*texts).messages))
    with pytest.raises(RowError, match=r"the chat holds half of a surrogate pair, which is no character"):
        supervise(chat(*texts), form)
    assert supervise(chat("Hello \U0001f642", "Hi"), form)


def test_a_format_can_be_sent_to_another_process():
    form = chat_format(chats.MARKED)
    again = pickle.loads(pickle.dumps(form))
    messages = chat("Hello", "Hi").messages
    assert again.encode_marked(messages) == form.encode_marked(messages)
