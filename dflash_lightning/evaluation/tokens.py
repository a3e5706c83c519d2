"""Prompts as the target reads them: its chat template, its tokenizer, its context.

in    Prompts, tokenizer, text config of the target
out   token ids, one list per prompt
law   a prompt that leaves no room for its answer is refused before anything is decoded
"""

from collections.abc import Sequence
from typing import Any

from jinja2 import TemplateError

from dflash_lightning.data.conversations import Message
from dflash_lightning.decoding.context import require_room
from dflash_lightning.evaluation.prompts import Prompt


def prompt_ids(
    prompts: Sequence[Prompt], tokenizer: Any, config: Any, *, max_new_tokens: int
) -> list[list[int]]:
    """Token ids of every prompt.

    Raises:
        ValueError: the tokenizer has no chat template, or refuses a prompt, or a prompt is too long; with the
            place of the prompt.
    """
    found = []
    for prompt in prompts:
        try:
            ids = chat_ids(tokenizer, prompt.messages, tools=prompt.tools)
        except (TemplateError, TypeError) as error:
            raise ValueError(f"{prompt.place}: the chat template refuses the prompt: {error}") from error
        require_room(config, len(ids), max_new_tokens, what=f"the prompt at {prompt.place}")
        found.append(ids)
    return found


def chat_ids(tokenizer: Any, messages: Sequence[Message], *, tools: Sequence[Any] | None = None) -> list[int]:
    """The messages in the target's chat template, ready for an answer. Raises ValueError without one."""
    if not getattr(tokenizer, "chat_template", None):
        raise ValueError("the target's tokenizer has no chat template; use --raw to continue plain text")
    tools_given = None if tools is None else list(tools)
    text = tokenizer.apply_chat_template(
        list(messages), tools=tools_given, tokenize=False, add_generation_prompt=True
    )
    return list(tokenizer(text, add_special_tokens=False).input_ids)  # the template wrote them already
