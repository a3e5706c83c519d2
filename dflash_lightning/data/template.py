"""A chat template together with the tokenizer that it was written for: messages -> token ids.

in    tokenizer, template text, arguments (such as enable_thinking), the ids that end an answer
out   ChatFormat: renders chats, and knows what the template puts before an answer
law   what the loss mask relies on is found by rendering a small chat, never by looking for marker strings
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from os.path import commonprefix
from typing import Any

from jinja2 import TemplateError

from dflash_lightning.data.conversations import Message, RowError
from dflash_lightning.data.tokenizer import ChatTokenizer

PROBE_QUESTION: Message = {"role": "user", "content": "Is it?"}
PROBE_ANSWERS = ("Yes, it is.", "42 of them.")  # no first letter in common
_MARK = re.compile(r"\{%-?\s*generation\s*-?%\}")


@dataclass(frozen=True, kw_only=True)
class ChatFormat:
    """Renders chats as the serving engine would. Made by `probe_format`; can be sent to other processes."""

    tokenizer: ChatTokenizer
    template: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Passed to the template by name; for a thinking model usually {"enable_thinking": false}."""
    stop_ids: frozenset[int]
    """Ids after which the target stops generating; one of them ends every answer."""
    generation_prompt: tuple[int, ...] = ()
    """Ids that the template adds to ask for an answer."""
    forced_start: tuple[int, ...] = ()
    """Ids that the template puts before an answer's own text and that the generation prompt does not hold."""

    @property
    def has_marks(self) -> bool:
        """Whether the template marks what the model generates: {% generation %} ... {% endgeneration %}."""
        return _MARK.search(self.template) is not None

    def render(
        self, messages: Sequence[Message], *, prompt: bool = False, tools: Sequence[Any] | None = None
    ) -> str:
        """The chat as text, with the generation prompt if asked. Raises RowError."""
        return str(self._apply(messages, tools, tokenize=False, add_generation_prompt=prompt))

    def encode(self, text: str) -> list[int]:
        """Token ids of rendered text. Raises RowError."""
        return list(self._tokenize(text)["input_ids"])

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[int]]:
        """Token ids of rendered text, and the character at which each token starts. Raises RowError."""
        out = self._tokenize(text, return_offsets_mapping=True)
        return list(out["input_ids"]), [start for start, _ in out["offset_mapping"]]

    def encode_marked(
        self, messages: Sequence[Message], tools: Sequence[Any] | None = None
    ) -> tuple[list[int], list[int]]:
        """Token ids of the chat, and 1 for each token inside the generation marks. Raises RowError."""
        how = {"return_dict": True, "tokenizer_kwargs": {"verbose": False}}
        try:
            out = self._apply(messages, tools, return_assistant_tokens_mask=True, **how)
        except RowError:
            _require_unicode(self.render(messages, tools=tools))  # else it is the template that refuses
            raise
        return list(out["input_ids"]), list(out["assistant_masks"])

    def _tokenize(self, text: str, **how: Any) -> Any:
        _require_unicode(text)
        return self.tokenizer(text, add_special_tokens=False, verbose=False, **how)

    def _apply(self, messages: Sequence[Message], tools: Sequence[Any] | None, **how: Any) -> Any:
        options = {"tools": None if tools is None else list(tools), "chat_template": self.template}
        try:
            return self.tokenizer.apply_chat_template(list(messages), **options, **self.arguments, **how)
        except (TemplateError, ValueError, TypeError, LookupError, AttributeError) as error:
            detail = f"{type(error).__name__}: {error}".splitlines()[0]
            raise RowError("the template refuses the chat", detail) from error


def _require_unicode(text: str) -> None:
    """JSON can hold half a surrogate pair; no tokenizer takes it. Raises RowError."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        where = f"{text[error.start]!r} at character {error.start + 1}"
        raise RowError("the chat holds half of a surrogate pair, which is no character", where) from error


def probe_format(bare: ChatFormat) -> ChatFormat:
    """Fill in what the template puts before an answer. Raises ValueError if no assistant turn is usable."""
    if not bare.tokenizer.is_fast:
        raise ValueError(
            f"{type(bare.tokenizer).__name__} cannot say where its tokens start: a fast tokenizer "
            "(tokenizer.json) is needed to find the answers of a chat"
        )
    try:
        asked = bare.encode(bare.render([PROBE_QUESTION]))
        prompt = bare.encode(bare.render([PROBE_QUESTION], prompt=True))
        answered = [_answer_ids(bare, prompt, text) for text in PROBE_ANSWERS]
    except RowError as error:
        raise ValueError(
            f"the chat template cannot be used: for one question and its answer, {error}. "
            "Give another one with --chat-template FILE"
        ) from error
    if prompt[: len(asked)] != asked:
        raise ValueError(
            "the chat template cannot be used: asking for an answer changes the tokens of the question "
            "before it. Give another one with --chat-template FILE"
        )
    forced = tuple(commonprefix(answered)) if answered[0] != answered[1] else ()
    if not bare.tokenizer.decode(list(forced)).strip():
        forced = ()  # a space: the target generates it itself
    if forced and len(prompt) == len(asked):
        raise ValueError(
            "the chat template has no generation prompt: it starts an answer with "
            f"{bare.tokenizer.decode(list(forced))!r} but adds nothing for add_generation_prompt, "
            "so no engine could ask for an answer. Give a complete one with --chat-template FILE"
        )
    return replace(bare, generation_prompt=tuple(prompt[len(asked) :]), forced_start=forced)


def _answer_ids(bare: ChatFormat, prompt: list[int], text: str) -> list[int]:
    """What the template renders after the generation prompt for this answer."""
    whole = bare.encode(bare.render([PROBE_QUESTION, {"role": "assistant", "content": text}]))
    if whole[: len(prompt)] != prompt:
        raise RowError("the generation prompt is not how the rendered answer starts")
    answer = whole[len(prompt) :]
    if not answer:
        raise RowError("the template renders no assistant turn")
    return answer
