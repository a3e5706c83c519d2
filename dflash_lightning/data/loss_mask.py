"""Chats -> token ids and loss mask: 1 on every token that the target itself would have generated.

in    Chat, ChatFormat, which assistant turns to train on
out   input_ids [S], loss_mask [S] in {0, 1}
law   a supervised span starts right after the generation prompt and ends with the first token at which the
      target stops; where that cannot be shown, the row is refused (spec/dflash.md 2.1 and pitfall 11)

Two ways to find the spans. A template with generation marks says it itself, and each marked span must follow
the template's generation prompt. Without marks, the chat is rendered up to each answer and after it: both
must be prefixes, in token ids, of the whole rendering.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Literal

from dflash_lightning.data.conversations import Chat, RowError
from dflash_lightning.data.template import PROBE_ANSWERS, PROBE_QUESTION, ChatFormat

Turns = Literal["all", "last"]
Span = tuple[int, int]


def supervise(chat: Chat, form: ChatFormat, *, turns: Turns = "all") -> tuple[list[int], list[int]]:
    """(input_ids [S], loss_mask [S]). Raises RowError if the assistant's tokens are not certain."""
    find = _marked_spans if form.has_marks else _prefix_spans
    ids, spans = find(chat, form, turns)
    mask = [0] * len(ids)
    for start, stop in spans:
        _require_own_start(ids[start:stop], form)
        mask[start:stop] = [1] * (stop - start)
    return ids, mask


def require_supervisable(form: ChatFormat) -> None:
    """Try a one-line chat, so that a template that suits no chat is one error and not a skipped row each.

    Raises ValueError. Text that the template adds is left to the rows: a thinking model adds it to some only.
    """
    chat = Chat([PROBE_QUESTION, {"role": "assistant", "content": PROBE_ANSWERS[0]}])
    try:
        supervise(chat, replace(form, forced_start=()))
    except RowError as error:
        raise ValueError(
            f"the chat template cannot be used: for one question and its answer, {error}"
        ) from error


def _prefix_spans(chat: Chat, form: ChatFormat, turns: Turns) -> tuple[list[int], list[Span]]:
    text = form.render(chat.messages, tools=chat.tools)
    ids, starts = form.encode_with_offsets(text)
    spans = []
    for turn in chat.assistant_turns[-1:] if turns == "last" else chat.assistant_turns:
        asked = form.render(chat.messages[:turn], prompt=True, tools=chat.tools)
        answered = form.render(chat.messages[: turn + 1], tools=chat.tools)
        prompt = form.encode(asked)  # equal text is not enough: its last token may join the answer's first
        if not (text.startswith(answered) and text.startswith(asked) and ids[: len(prompt)] == prompt):
            raise RowError(
                "prefixes do not agree",
                f"the chat up to message {turn + 1} gives other tokens when more follows",
            )
        end = bisect_left(starts, len(answered))  # the turn with what the template closes it with
        spans.append((len(prompt), _stop(ids[:end], len(prompt), form)))
    return ids, spans


def _marked_spans(chat: Chat, form: ChatFormat, turns: Turns) -> tuple[list[int], list[Span]]:
    ids, marks = form.encode_marked(chat.messages, chat.tools)
    marked = list(_runs(marks))
    if not marked:
        raise RowError("the generation marks cover no token")
    asks = list(form.generation_prompt)
    spans = []
    for start, stop in marked[-1:] if turns == "last" else marked:
        if ids[max(0, start - len(asks)) : start] != asks:
            raise RowError(
                "the generation marks do not start right after the generation prompt", f"at token {start}"
            )
        closing = stop + (ids[stop : stop + 1] != [] and ids[stop] in form.stop_ids)  # often left unmarked
        spans.append((start, _stop(ids[:closing], start, form)))
    return ids, spans


def _runs(marks: Sequence[int]) -> Iterator[Span]:
    """[0, 1, 1, 0, 1] -> (1, 3), (4, 5)."""
    at = 0
    for marked, group in groupby(marks):
        size = len(list(group))
        if marked:
            yield at, at + size
        at += size


def _stop(ids: Sequence[int], start: int, form: ChatFormat) -> int:
    """End of the answer that starts at `start`, its stop token included; a line break after it is not."""
    stops = [at for at in range(start, len(ids)) if ids[at] in form.stop_ids]
    if not stops:
        raise RowError(
            "the answer does not end with a stop token",
            f"stop ids {sorted(form.stop_ids)}, last ids {list(ids[start:][-3:])}; name it with --stop-token",
        )
    rest = [i for i in ids[stops[0] + 1 :] if i not in form.stop_ids]
    if form.tokenizer.decode(rest).strip():
        raise RowError("the answer holds a stop token before its end", f"id {ids[stops[0]]}")
    return stops[0] + 1


def _require_own_start(answer: Sequence[int], form: ChatFormat) -> None:
    """Refuse an answer that opens with the template's own text, such as an empty <think> block.

    The target was not asked with it and would not have generated it: the drafter would learn a mode that
    is not the one served.
    """
    size = len(form.forced_start)
    if size and tuple(answer[:size]) == form.forced_start:
        raise RowError(
            "the template adds text to the answer that is not in its generation prompt",
            f"{form.tokenizer.decode(list(form.forced_start))!r}; a thinking model may need "
            """--template-arguments '{"enable_thinking": false}'""",
        )
