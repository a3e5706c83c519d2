"""Answers from the target in this process, in batches of prompts of like length.

in    open chats
out   the same chats, finished, in the order in which they finish
law   which chats share a batch decides nothing but speed; a batch that does not fit into memory is halved
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import torch

from dflash_lightning.data.conversations import RowError
from dflash_lightning.data.template import ChatFormat
from dflash_lightning.decoding.sampling import Sampling
from dflash_lightning.regenerate.batch import OnTokens, answer_batch
from dflash_lightning.regenerate.chats import Answer, OpenChat
from dflash_lightning.regenerate.config import RegenerateConfig
from dflash_lightning.target.model import Target

WINDOW = 16  # batches that are sorted by length together: little padding, and turns of all kinds go on


@dataclass(frozen=True)
class _Job:
    """The next answer of a chat."""

    chat: OpenChat
    ids: list[int]
    limit: int


class LocalTarget:
    """A backend: the target through Transformers."""

    def __init__(
        self,
        target: Target,
        form: ChatFormat,
        config: RegenerateConfig,
        *,
        batch_size: int = 32,
        on_tokens: OnTokens = lambda count: None,
    ) -> None:
        """Raises ValueError for a batch size below 1."""
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        self._target = target
        self._form = form
        self._config = config
        self._batch_size = batch_size
        self._on_tokens = on_tokens
        self._sampling = Sampling(temperature=config.temperature, top_k=config.top_k, top_p=config.top_p)

    def answer_all(self, chats: Iterable[OpenChat]) -> Iterator[OpenChat]:
        """Turn by turn: all chats of a window get an answer before one of them gets its next."""
        source = iter(chats)
        while window := list(islice(source, WINDOW * self._batch_size)):
            while window:
                jobs = sorted(filter(None, map(self._job, window)), key=lambda job: (job.limit, len(job.ids)))
                for start in range(0, len(jobs), self._batch_size):
                    batch = jobs[start : start + self._batch_size]
                    self._answer(batch)
                    yield from (job.chat for job in batch if job.chat.finished)
                asked = {id(job.chat) for job in jobs}
                yield from (chat for chat in window if id(chat) not in asked)  # they could not be asked
                window = [chat for chat in window if not chat.finished]

    def _job(self, chat: OpenChat) -> _Job | None:
        try:
            ids = self._form.encode(self._form.render(chat.prompt, prompt=True, tools=chat.tools))
        except RowError as error:
            chat.end("skipped", error.reason, error.detail)
            return None
        context = getattr(self._target.config, "max_position_embeddings", None) or 1 << 40
        if not 0 < len(ids) < context:
            reason = "the prompt is longer than the target's context" if ids else "the prompt is empty"
            chat.end("skipped", reason, f"{len(ids)} tokens, context {context}")
            return None
        return _Job(chat, ids, min(self._config.max_new_tokens, context - len(ids)))

    def _answer(self, jobs: Sequence[_Job]) -> None:
        try:
            answers = answer_batch(
                self._target,
                [job.ids for job in jobs],
                limits=[job.limit for job in jobs],
                stop_ids=self._form.stop_ids,
                sampling=self._sampling,
                seeds=[job.chat.seed(self._config.seed) for job in jobs],
                on_tokens=self._on_tokens,
            )
        except torch.OutOfMemoryError as error:
            detail = str(error).splitlines()[0]
        else:
            for job, ids in zip(jobs, answers, strict=True):
                job.chat.take(self._read(job, ids))
            return
        # outside of the except block, whose traceback would keep the batch's memory
        if len(jobs) == 1:
            jobs[0].chat.end("failed", "the answer does not fit into the device's memory", detail)
            return
        self._answer(jobs[: len(jobs) // 2])
        self._answer(jobs[len(jobs) // 2 :])

    def _read(self, job: _Job, ids: Sequence[int]) -> Answer:
        """Control tokens inside the answer stay in its text: rendered again, they are the same tokens."""
        ended = ids[-1] in self._form.stop_ids
        own = list(ids[:-1] if ended else ids)
        tokenizer: Any = self._form.tokenizer
        text = tokenizer.decode(own, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        answer = Answer(text, tokens=len(ids), truncated=not ended)
        return replace(answer, same_tokens=self._comes_back(job, own, answer))

    def _comes_back(self, job: _Job, own: Sequence[int], answer: Answer) -> bool | None:
        """Whether `prepare` finds these tokens: a template may trim the text, or join it to what follows."""
        try:
            shown = self._form.render([*job.chat.prompt, answer.message], tools=job.chat.tools)
            ids = self._form.encode(shown)
        except RowError:
            return None  # nor will `prepare` take the chat
        return ids[: len(job.ids) + len(own)] == [*job.ids, *own]
