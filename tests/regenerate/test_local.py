"""Answers here: whether their text gives the generated tokens again, as `prepare` will read it."""

from functools import cache

import pytest
import torch
from tokenizers import Regex, Tokenizer, decoders
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from transformers import PreTrainedTokenizerFast

from dflash_lightning.data.conversations import Chat
from dflash_lightning.data.loss_mask import supervise
from dflash_lightning.data.template import ChatFormat, probe_format
from dflash_lightning.regenerate.config import RegenerateConfig
from dflash_lightning.regenerate.local import LocalTarget
from dflash_lightning.target.loading import load_target
from tests.regenerate.answering import open_for, question
from tests.toy import VOCAB

SPACES = " \n\t\r\u2003"
LETTERS = "Yes,itu.42ofhmIqabcdgjklnprvwxyzABCDEFGHJKLMN"
CHARACTERS = "?§¶" + SPACES + LETTERS
AS_IT_IS = "{% for m in messages %}§{{ m.content }}¶{% endfor %}{% if add_generation_prompt %}§{% endif %}"
TRIMMED = AS_IT_IS.replace("m.content", "m.content | trim")
STOPS = 12
"""The last characters end an answer, too, so that random text ends."""


def char_form(template):
    """A token for each character; § starts a message, ¶ ends it."""
    assert len(set(CHARACTERS)) == len(CHARACTERS) == VOCAB
    core = Tokenizer(WordLevel({text: i for i, text in enumerate(CHARACTERS)}, unk_token="?"))
    core.pre_tokenizer = Split(Regex(r"[\s\S]"), "isolated")
    core.decoder = decoders.Fuse()
    wrapped = PreTrainedTokenizerFast(tokenizer_object=core, eos_token="¶")
    stops = frozenset({2, *range(len(CHARACTERS) - STOPS, len(CHARACTERS))})
    return probe_format(ChatFormat(tokenizer=wrapped, template=template, stop_ids=stops))


@pytest.fixture(scope="module")
def answered(toy_target):
    """Each template's form and 200 chats, answered with the toy's random text."""
    target = load_target(toy_target, dtype=torch.float32)
    config = RegenerateConfig(
        input=("a.jsonl",), output="b.jsonl", max_new_tokens=8, temperature=2.0, truncated="keep"
    )

    @cache
    def answer(template):
        form = char_form(template)
        chats = [open_for(question(f"a{LETTERS[n % 20]}b"), n) for n in range(200)]
        return form, list(LocalTarget(target, form, config, batch_size=50).answer_all(chats))

    return answer


def texts(chats):
    return [(answer.text, answer.same_tokens) for chat in chats for answer in chat.answers]


def test_a_template_that_trims_answers_changes_those_with_spaces_around_them(answered):
    _, chats = answered(TRIMMED)
    told = texts(chats)
    assert {same for _, same in told} == {True, False}
    assert all(same == (text == text.strip()) for text, same in told)


def test_a_template_that_keeps_answers_changes_none(answered):
    _, chats = answered(AS_IT_IS)
    told = texts(chats)
    assert any(text != text.strip() for text, _ in told)
    assert {same for _, same in told} == {True}


@pytest.mark.parametrize("template", [AS_IT_IS, TRIMMED])
def test_what_is_counted_is_what_prepare_trains_on(template, answered):
    form, chats = answered(template)
    whole = [chat for chat in chats if chat.record().status == "ok"]
    assert len(whole) > 50
    for chat in whole:
        ids, mask = supervise(Chat(chat.messages), form)
        trained = [token for token, learned in zip(ids, mask, strict=True) if learned]
        (answer,) = chat.answers
        generated = [CHARACTERS.index(character) for character in answer.text]
        assert (trained[:-1] == generated) == answer.same_tokens
