"""The two backends of `regenerate`, made from its options.

in    options of the command line
out   what is answering, by name, for the identity of unfinished work; and a function that starts it
law   weights are loaded at the start and not before: a run with no row left only reads a few bytes of each
      tensor, to know that they are the same
"""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from jsonargparse import Namespace

from dflash_lightning.commands.chat_options import chat_format
from dflash_lightning.commands.decoding_options import require_device
from dflash_lightning.commands.regenerate_progress import Meter
from dflash_lightning.regenerate.client import ChatClient
from dflash_lightning.regenerate.config import RegenerateConfig, ServerSettings
from dflash_lightning.regenerate.key import KEY_VARIABLE
from dflash_lightning.regenerate.run import Backend
from dflash_lightning.regenerate.server import ServerTarget

if TYPE_CHECKING:  # torch and transformers take seconds to import, and answers of a server need neither
    from dflash_lightning.data.template import ChatFormat

Started = tuple[dict[str, Any], Callable[[], Backend]]
"""What is answering, for the identity of unfinished work; and how to start it."""


def on_server(options: Namespace, config: RegenerateConfig, meter: Meter) -> Started:
    """Asks the server for its model, where none is named. Raises ServerError, ValueError."""
    meter.count_rows_tokens = True
    settings = ServerSettings(
        urls=tuple(options.server),
        template_arguments=options.template_arguments,
        request=options.request,
        concurrency=options.concurrency,
        timeout_s=options.timeout,
        deadline_s=options.deadline,
        attempts=options.attempts,
    )
    client = ChatClient(settings, os.environ.get(KEY_VARIABLE))
    model = options.model or client.model()

    def start() -> Backend:
        client.require_alive()
        return ServerTarget(client, config, settings, model=model)

    return _server_identity(model, settings), start


def _server_identity(model: str, settings: ServerSettings) -> dict[str, Any]:
    """The address is left out: a server that was moved is still the same target."""
    return {
        "backend": "server",
        "model": model,
        "template_arguments": dict(settings.template_arguments),
        "request": dict(settings.request),
    }


def in_this_process(options: Namespace, config: RegenerateConfig, meter: Meter) -> Started:
    """Reads the target's tokenizer; its weights when the backend is started. Raises ValueError, OSError."""
    import torch
    from transformers.utils import logging

    from dflash_lightning.data.tokenizer import template_hash, tokenizer_hash
    from dflash_lightning.regenerate.local import LocalTarget
    from dflash_lightning.target.identity import target_digest
    from dflash_lightning.target.loading import load_target

    logging.disable_progress_bar()  # one bar is enough
    form = _form(options)
    device = options.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    require_device(device)
    identity = {
        "backend": "transformers",
        "target": {"digest": target_digest(options.target), "name": options.target},
        "dtype": options.dtype,
        "tokenizer": tokenizer_hash(form.tokenizer),
        "template": template_hash(form.tokenizer, form.template, form.arguments),
        "stop_ids": sorted(form.stop_ids),
    }

    def start() -> Backend:
        target = load_target(options.target, dtype=getattr(torch, options.dtype), device=device)
        return LocalTarget(target, form, config, batch_size=options.batch_size, on_tokens=meter.tokens)

    return identity, start


def _form(options: Namespace) -> "ChatFormat":
    from dflash_lightning.data.template import probe_format
    from dflash_lightning.target.loading import load_tokenizer

    return probe_format(chat_format(options, load_tokenizer(options.target)))
