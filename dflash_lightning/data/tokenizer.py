"""What is asked of a tokenizer, and its identity.

in    a Hugging Face tokenizer with its chat template (its own, or the text of a file)
out   two hashes that are equal on every machine and library version where the token ids are
law   a store that was prepared with one tokenizer or template is never trained with another unnoticed
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

PROBE = "The 3 cafés cost 1,234.50 €:\n\tfor i in range(9):  print(i)\r\n«Ça va ?» 你好 ﬁ Ǆ 🙂🏽 don't <|x|>"
"""Text whose ids depend on merges, normaliser and pre-tokeniser, which the vocabulary does not show."""


@runtime_checkable
class ChatTokenizer(Protocol):
    """The part of transformers' PreTrainedTokenizerBase that is used here."""

    chat_template: Any
    eos_token_id: Any
    special_tokens_map: Any
    is_fast: bool

    def __call__(self, text: str, **kwargs: Any) -> Any: ...
    def get_vocab(self) -> dict[str, int]: ...
    def get_added_vocab(self) -> dict[str, int]: ...
    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]: ...
    def decode(self, token_ids: Sequence[int]) -> Any: ...
    def apply_chat_template(self, conversation: Any, **kwargs: Any) -> Any: ...


def vocab_size(tokenizer: ChatTokenizer) -> int:
    """One more than the largest id: the rows that the target's embedding needs at least."""
    return max(tokenizer.get_vocab().values()) + 1


def tokenizer_hash(tokenizer: ChatTokenizer) -> str:
    """32 hex digits over vocabulary, added tokens and the ids of a probe text; the chat template is apart."""
    probe = [int(i) for i in tokenizer.encode(PROBE, add_special_tokens=False)]
    return _digest(
        [sorted(tokenizer.get_vocab().items()), sorted(tokenizer.get_added_vocab().items()), probe]
    )


def template_hash(tokenizer: ChatTokenizer, template: str, arguments: Mapping[str, Any] | None = None) -> str:
    """32 hex digits over the template's text, its arguments, and the special tokens that it may name."""
    special = {name: str(token) for name, token in tokenizer.special_tokens_map.items()}
    return _digest([template, dict(arguments or {}), special])


def own_template(tokenizer: ChatTokenizer) -> str | None:
    """The tokenizer's chat template; of several named ones, the one called default."""
    template = tokenizer.chat_template
    if isinstance(template, Mapping):
        template = template.get("default")
    return template if template is None else str(template)


def stop_ids(
    tokenizer: ChatTokenizer, names: Sequence[str], target_ids: Sequence[int] = ()
) -> frozenset[int]:
    """Ids that end an answer: the tokenizer's eos, the target's own, and named ones. Raises ValueError."""
    vocab = tokenizer.get_vocab()
    for name in names:
        if name not in vocab:
            raise ValueError(f"--stop-token {name!r} is not one token of the target's vocabulary")
    eos = () if tokenizer.eos_token_id is None else (int(tokenizer.eos_token_id),)
    return frozenset((*eos, *target_ids, *(vocab[name] for name in names)))


def _digest(value: object) -> str:
    text = json.dumps(value, sort_keys=True)  # ASCII escapes: equal bytes for equal strings
    return hashlib.sha256(text.encode()).hexdigest()[:32]
