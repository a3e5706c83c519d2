"""Runs of `regenerate` against the server of the tests, in this process."""

import json
from pathlib import Path

from dflash_lightning.regenerate.client import ChatClient
from dflash_lightning.regenerate.config import RegenerateConfig, ServerSettings
from dflash_lightning.regenerate.run import regenerate
from dflash_lightning.regenerate.server import ServerTarget
from tests.regenerate.chat_server import answer_to

QUICK = {"concurrency": 4, "timeout_s": 5.0, "deadline_s": 20.0}


def write_rows(path: Path, rows) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def read_rows(path: Path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def question(text):
    return {"messages": [{"role": "user", "content": text}]}


def settings_for(*urls, **changes):
    return ServerSettings(urls=urls, **{**QUICK, **changes})


def run(tmp_path, rows, *urls, key=None, server=None, model="toy", **changes):
    """The rows of the output, the rows of the status file, the summary."""
    config = RegenerateConfig(
        input=(str(write_rows(tmp_path / "in.jsonl", rows)),), output=str(tmp_path / "out.jsonl"), **changes
    )
    settings = settings_for(*urls, **(server or {}))
    summary = regenerate(
        config,
        {"model": model},
        lambda: ServerTarget(ChatClient(settings, key), config, settings, model="toy"),
    )
    return read_rows(tmp_path / "out.jsonl"), read_rows(tmp_path / "out.jsonl.status"), summary


def expected(row, number, *, seed=0, temperature=0.0):
    """The row with the server's answers in place, turn by turn."""
    chat, messages = open_for(row, number), []
    for turn, message in enumerate(chat.messages):
        if turn in chat.turns:
            text = answer_to(messages, seed=chat.seed(seed), temperature=temperature)
            chat.answers.append(None)  # the next seed
            message = {"role": "assistant", "content": text}
        messages.append(message)
    return {**{k: v for k, v in row.items() if k != "messages"}, "messages": messages}


def open_for(row, number):
    from dflash_lightning.regenerate.chats import open_chat

    return open_chat(row, number=number, place="", turns="all")
