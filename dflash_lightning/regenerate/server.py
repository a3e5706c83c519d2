"""Answers from a running server, many chats at once.

in    open chats
out   the same chats, finished, in the order in which they finish
law   at most `concurrency` chats are on their way; one thread answers a chat turn by turn; no thread outlives
      the iteration, however it ends
"""

from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice

from dflash_lightning.regenerate.chats import OpenChat
from dflash_lightning.regenerate.client import ChatClient, FailedError
from dflash_lightning.regenerate.config import RegenerateConfig, ServerSettings
from dflash_lightning.regenerate.replies import RefusedError, request_body


class ServerTarget:
    """A backend: the target behind an OpenAI-compatible address."""

    def __init__(
        self, client: ChatClient, config: RegenerateConfig, settings: ServerSettings, *, model: str
    ) -> None:
        self._client = client
        self._config = config
        self._settings = settings
        self._model = model

    def answer_all(self, chats: Iterable[OpenChat]) -> Iterator[OpenChat]:
        """Raises ServerError where no row can be answered; chats that finished before are yielded first."""
        source = iter(chats)
        with ThreadPoolExecutor(self._settings.concurrency, thread_name_prefix="regenerate") as threads:
            try:
                waiting: set[Future[OpenChat]] = set()
                while True:
                    free = self._settings.concurrency - len(waiting)
                    waiting |= {threads.submit(self._answer, chat) for chat in islice(source, free)}
                    if not waiting:
                        return
                    done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                    good = [future for future in done if future.exception() is None]
                    yield from (future.result() for future in good)
                    for future in done:
                        future.result()
            except BaseException:  # Ctrl-C at any line, and an iteration that is left, among them
                self._client.stop()
                raise

    def _answer(self, chat: OpenChat) -> OpenChat:
        while not chat.finished:
            body = request_body(chat, self._config, self._settings, self._model)
            try:
                chat.take(self._client.ask(body))
            except RefusedError as error:
                chat.end("skipped", str(error), f"answer {len(chat.answers) + 1}")
            except FailedError as error:
                reason, _, detail = str(error).partition(": ")
                chat.end("failed", reason, detail)
        return chat
