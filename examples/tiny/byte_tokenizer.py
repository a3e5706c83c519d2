"""A tokenizer without a vocabulary to learn: token i is byte i, then four special tokens."""

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

SPECIAL = {"bos_token": "<|bos|>", "eos_token": "<|eos|>", "pad_token": "<|pad|>", "mask_token": "<|mask|>"}
"""Ids 256 to 259; the mask token stands at the slots to be drafted and never in text."""
VOCAB_SIZE = 256 + len(SPECIAL)
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{{ message['content'] }}"
    "{% if message['role'] == 'assistant' %}{{ eos_token }}{% endif %}{% endfor %}"
)
"""A base model continues text: the prompt is the user's message and nothing else."""


def byte_tokenizer() -> PreTrainedTokenizerFast:
    vocab = {character: byte for byte, character in enumerate(byte_characters())}
    backend = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in SPECIAL.values()]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, chat_template=TEMPLATE, clean_up_tokenization_spaces=False, **SPECIAL
    )


def byte_characters() -> list[str]:
    """The visible character by which byte-level tokenizers write each byte: itself, or 256 and up in turn."""
    visible = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    hidden = [byte for byte in range(256) if byte not in visible]
    return [chr(byte) if byte in visible else chr(256 + hidden.index(byte)) for byte in range(256)]
