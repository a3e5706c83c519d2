"""Prompts as the target reads them: its chat template, its tokenizer, its context.

in    Prompts, the chat format, text config of the target
out   token ids, one list per prompt
law   a prompt that is refused by the template, or leaves no room for its answer, is refused before anything
      is decoded
"""

from collections.abc import Sequence
from typing import Any

from dflash_lightning.data.conversations import Message, RowError
from dflash_lightning.data.template import ChatFormat
from dflash_lightning.decoding.context import require_room
from dflash_lightning.evaluation.prompts import Prompt


def prompt_ids(
    prompts: Sequence[Prompt], form: ChatFormat, config: Any, *, max_new_tokens: int
) -> list[list[int]]:
    """Token ids of every prompt.

    Raises:
        ValueError: the template refuses a prompt, or a prompt is too long; with its place.
    """
    found = []
    for prompt in prompts:
        what = f"the prompt at {prompt.place}"
        ids = chat_ids(form, prompt.messages, tools=prompt.tools, what=what)
        require_room(config, len(ids), max_new_tokens, what=what)
        found.append(ids)
    return found


def chat_ids(
    form: ChatFormat,
    messages: Sequence[Message],
    *,
    tools: Sequence[Any] | None = None,
    what: str = "the prompt",
) -> list[int]:
    """The messages in the chat template, ready for an answer. Raises ValueError where it refuses them."""
    try:
        return form.encode(form.render(messages, prompt=True, tools=tools))
    except RowError as error:
        raise ValueError(f"{what} cannot be asked: {error}") from error
