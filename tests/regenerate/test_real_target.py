"""Greedy text of the embedded target here, and of a toy behind `transformers serve`."""

import os
import subprocess
import sys
import time
from importlib.util import find_spec

import pytest
import torch

from dflash_lightning.commands.regenerate import main
from dflash_lightning.decoding.plain import decode_plain
from dflash_lightning.regenerate.client import ChatClient, ServerError
from dflash_lightning.target.embedded import EMBEDDED, find_gguf
from dflash_lightning.target.loading import load_stop_ids, load_target, load_tokenizer
from tests.ports import free_port
from tests.regenerate.answering import question, read_rows, settings_for, write_rows
from tests.regenerate.toy_chat import save_chat_target

QUESTIONS = ["Name three planets.", "Write a line about rain.", "What is the capital of France?"]
LENGTH = 24


def answers(tmp_path, rows, *options):
    given, out = write_rows(tmp_path / "in.jsonl", rows), tmp_path / "out.jsonl"
    words = ["--input", str(given), "--output", str(out), "--truncated", "keep"]
    assert main([*words, "--max-new-tokens", str(LENGTH), *options]) == 0
    return [row["messages"][-1]["content"] for row in read_rows(out)]


def plain_texts(name, questions):
    target, tokenizer = load_target(name, dtype=torch.float32), load_tokenizer(name)
    ends = {tokenizer.eos_token_id, *load_stop_ids(name)}
    for asked in questions:
        text = tokenizer.apply_chat_template(
            question(asked)["messages"], tokenize=False, add_generation_prompt=True
        )
        prompt = tokenizer(text, add_special_tokens=False).input_ids
        ids = decode_plain(target, prompt, max_new_tokens=LENGTH, stop_ids=ends).token_ids
        yield tokenizer.decode(ids[:-1] if ids[-1] in ends else ids)


@pytest.mark.slow
def test_the_embedded_target_gives_its_greedy_text(tmp_path):
    try:
        find_gguf()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    options = ["--target", EMBEDDED, "--dtype", "float32", "--device", "cpu"]
    told = answers(tmp_path, [question(text) for text in QUESTIONS], *options)
    assert told == list(plain_texts(EMBEDDED, QUESTIONS))


@pytest.fixture
def transformers_server(tmp_path):
    """`transformers serve` with the toy target that chats: (address, folder)."""
    if missing := [
        name for name in ("fastapi", "uvicorn", "openai", "accelerate") if find_spec(name) is None
    ]:
        pytest.skip(f"transformers serve needs {', '.join(missing)}: pip install 'transformers[serving]'")
    folder = save_chat_target(tmp_path / "target")
    port = free_port()
    words = ["--host", "127.0.0.1", "--port", str(port), "--device", "cpu", "--dtype", "float32"]
    code = "import sys; from transformers.cli.transformers import main; sys.exit(main())"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "serve", str(folder), *words], env={**os.environ, "HF_HUB_OFFLINE": "1"}
    )
    client = ChatClient(settings_for(f"http://127.0.0.1:{port}"))
    try:
        _wait_for(client, process)
        yield f"http://127.0.0.1:{port}", folder
    finally:
        process.kill()
        process.wait()


def _wait_for(client, process):
    for _ in range(900):
        try:
            client.require_alive()
            return
        except ServerError:
            assert process.poll() is None, "transformers serve ended at its start"
            time.sleep(0.2)
    raise AssertionError("transformers serve is not ready after 3 minutes")


@pytest.mark.slow
def test_transformers_serve_can_be_asked_and_gives_the_same_greedy_text(transformers_server, tmp_path):
    url, folder = transformers_server
    asked = [f"t{n:02}" for n in range(3, 6)]
    told = answers(
        tmp_path,
        [question(text) for text in asked],
        "--server",
        url,
        "--model",
        str(folder),
        "--concurrency",
        "2",
    )
    for text, plain in zip(told, plain_texts(folder, asked), strict=True):
        assert text.endswith(plain)  # 5.24 repeats the prompt before it: it finds no start of an answer
