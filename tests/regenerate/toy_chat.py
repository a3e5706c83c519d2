"""A toy target that chats: its words are t00 to t52, none of which is the start of another."""

import json
from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import PreTrainedTokenizerFast

from tests.toy import VOCAB, toy_model

TEMPLATE = (
    "{% for m in messages %}t02 {{ m.content }} t01 {% endfor %}{% if add_generation_prompt %}t02 {% endif %}"
)
WORDS = [f"t{i:02}" for i in range(VOCAB)]


def chat_tokenizer() -> PreTrainedTokenizerFast:
    core = Tokenizer(WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="t00"))
    core.pre_tokenizer = Whitespace()
    wrapped = PreTrainedTokenizerFast(tokenizer_object=core, eos_token="t01")
    wrapped.chat_template = TEMPLATE
    return wrapped


def save_chat_target(folder: Path) -> Path:
    toy_model().save_pretrained(folder)
    chat_tokenizer().save_pretrained(folder)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [1]}))
    return folder
