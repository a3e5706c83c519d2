"""The embedded target's own tokenizer and template, with the system prompt that it adds by itself."""

import pytest
from transformers import AutoTokenizer

from dflash_lightning.data.loss_mask import require_supervisable
from dflash_lightning.data.template import ChatFormat, probe_format
from dflash_lightning.data.tokenizer import own_template, stop_ids
from dflash_lightning.target.embedded import EMBEDDED, resolve_target
from tests.data.chats import chat
from tests.data.test_loss_mask import supervised_texts


@pytest.fixture(scope="module")
def form():
    try:
        tokenizer = AutoTokenizer.from_pretrained(resolve_target(EMBEDDED))
    except FileNotFoundError as error:
        pytest.skip(str(error))
    bare = ChatFormat(tokenizer=tokenizer, template=own_template(tokenizer), stop_ids=stop_ids(tokenizer, []))
    return probe_format(bare)


@pytest.mark.slow
def test_smollm2_answers_are_found_between_its_own_prompt_and_stop_token(form):
    require_supervisable(form)
    assert form.tokenizer.decode(list(form.generation_prompt)) == "<|im_start|>assistant\n"
    talk = chat("Hello", "Hi there!\n\nHow are you?", "Bye", " See you.", system=None)
    expected = ["Hi there!\n\nHow are you?<|im_end|>", " See you.<|im_end|>"]
    assert supervised_texts(talk, form) == expected
    assert supervised_texts(talk, form, turns="last") == expected[1:]
    assert "SmolLM" in form.render(talk.messages)  # the system prompt nobody wrote
