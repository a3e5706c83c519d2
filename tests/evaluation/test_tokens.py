from types import SimpleNamespace

import pytest

from dflash_lightning.evaluation.prompts import Prompt
from dflash_lightning.evaluation.tokens import chat_ids, prompt_ids
from tests.data import chats

QUESTION = [{"role": "user", "content": "Is it?"}]
ROOM = SimpleNamespace(max_position_embeddings=100)


@pytest.mark.parametrize("arguments", [{}, {"enable_thinking": False}])
@pytest.mark.parametrize("template", [chats.CHATML, chats.ADDS_THINKING, chats.DEFAULT_SYSTEM])
def test_a_question_is_what_stands_before_the_answer_in_training(template, arguments):
    form = chats.chat_format(template, **arguments)
    asked = chat_ids(form, QUESTION)
    answered = form.encode(form.render([*QUESTION, {"role": "assistant", "content": "Yes."}]))
    assert answered[: len(asked)] == asked
    if template == chats.ADDS_THINKING:
        assert ("<think>" in form.tokenizer.decode(asked)) == bool(arguments)  # the arguments do something


@pytest.mark.parametrize(
    ("template", "detail"),
    [
        (chats.NO_SYSTEM, "TemplateError: no system role"),
        ("{{ messages[0].content + 1 }}", "TypeError"),
        ("{% if %}", "TemplateSyntaxError"),
        ("{{ messages[9].content }}", "UndefinedError"),
    ],
)
def test_a_prompt_that_the_template_refuses_is_named(template, detail):
    form = chats.ChatFormat(tokenizer=chats.tokenizer(), template=template, stop_ids=frozenset())
    messages = [{"role": "system", "content": "Be brief."}, *QUESTION]
    prompts = [Prompt(messages, "all", "p.jsonl:7")]
    message = f"the prompt at p.jsonl:7 cannot be asked: the template refuses the chat .*{detail}"
    with pytest.raises(ValueError, match=message):
        prompt_ids(prompts, form, ROOM, max_new_tokens=1)


def test_a_prompt_without_room_for_its_answer_is_named():
    form = chats.chat_format()
    length = len(chat_ids(form, QUESTION))
    prompts = [Prompt(QUESTION, "all", "p.jsonl:7")]
    assert prompt_ids(prompts, form, ROOM, max_new_tokens=100 - length) == [chat_ids(form, QUESTION)]
    with pytest.raises(ValueError, match=rf"the prompt at p.jsonl:7 has {length} tokens and its answer may"):
        prompt_ids(prompts, form, ROOM, max_new_tokens=101 - length)
