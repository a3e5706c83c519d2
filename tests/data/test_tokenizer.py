import subprocess
import sys

import pytest
from tokenizers import normalizers
from transformers import PreTrainedTokenizerFast

from dflash_lightning.data.tokenizer import own_template, stop_ids, template_hash, tokenizer_hash, vocab_size
from tests.data import chats


def test_the_hash_survives_saving_and_is_the_same_in_another_process(tmp_path):
    made = chats.tokenizer()
    made.save_pretrained(tmp_path)
    again = PreTrainedTokenizerFast.from_pretrained(tmp_path)
    assert tokenizer_hash(again) == tokenizer_hash(made)
    assert template_hash(again, chats.CHATML) == template_hash(made, chats.CHATML)
    code = (
        "from dflash_lightning.data.tokenizer import template_hash, tokenizer_hash\n"
        "from tests.data import chats\n"
        "made = chats.tokenizer();"
        "print(tokenizer_hash(made), template_hash(made, chats.CHATML, {'b': 1, 'a': 2}))"
    )
    other = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert other == [tokenizer_hash(made), template_hash(made, chats.CHATML, {"a": 2, "b": 1})]


def test_another_vocabulary_or_normaliser_is_another_tokenizer():
    base, more, lower = chats.tokenizer(), chats.tokenizer(), chats.tokenizer()
    more.add_tokens(["new"])
    lower.backend_tokenizer.normalizer = normalizers.Lowercase()  # same vocabulary, other ids
    assert len({tokenizer_hash(each) for each in (base, more, lower)}) == 3


def test_the_template_is_no_part_of_the_tokenizers_hash():
    assert tokenizer_hash(chats.tokenizer(chats.CHATML)) == tokenizer_hash(chats.tokenizer(None))


def test_the_template_hash_covers_text_arguments_and_special_tokens():
    made, other_eos = chats.tokenizer(), chats.tokenizer()
    other_eos.eos_token = "<|endoftext|>"
    hashes = {
        template_hash(made, chats.CHATML),
        template_hash(made, chats.MARKED),
        template_hash(made, chats.CHATML, {"enable_thinking": False}),
        template_hash(other_eos, chats.CHATML),
    }
    assert len(hashes) == 4


def test_vocabulary_and_template_are_read_off():
    made = chats.tokenizer()
    assert vocab_size(made) == 261
    assert own_template(made) == chats.CHATML
    assert own_template(chats.tokenizer(None)) is None
    made.chat_template = {"default": "a", "tool_use": "b"}
    assert own_template(made) == "a"


def test_stop_ids_come_from_tokenizer_target_and_user():
    assert stop_ids(chats.tokenizer(), ["</think>"], [7]) == {258, 260, 7}
    with pytest.raises(ValueError, match="--stop-token '<eot>' is not one token of the target's vocabulary"):
        stop_ids(chats.tokenizer(), ["<eot>"])
