import dataclasses
import shutil

import pytest
import torch
from transformers import AutoTokenizer

from dflash_lightning.commands.generate import Stream, encode_prompt, main
from dflash_lightning.decoding.plain import decode_plain
from dflash_lightning.export.zlab import export_zlab
from dflash_lightning.target.loading import load_target
from tests.decoding.drafters import random_drafter

TEMPLATE = (
    "{% for m in messages %}t2 {{ m.content }} t3 {% endfor %}{% if add_generation_prompt %}t4{% endif %}"
)


@pytest.fixture(scope="module")
def target_folder(toy_target, tmp_path_factory):
    folder = tmp_path_factory.mktemp("chat") / "target"
    shutil.copytree(toy_target, folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def target(target_folder):
    return load_target(target_folder, dtype=torch.float32)


@pytest.fixture(scope="module")
def drafter_folder(target, tmp_path_factory):
    drafter = random_drafter(target)
    return export_zlab(drafter.config, drafter.state_dict(), tmp_path_factory.mktemp("drafter") / "d")


def run(target_folder, *extra):
    return main(["--target", str(target_folder), "--prompt", "t9 t8 t7", "--max-new-tokens", "12", *extra])


def test_text_streams_and_a_summary_follows(target_folder, drafter_folder, target, capsys):
    assert run(target_folder, "--drafter", str(drafter_folder), "--check") == 0
    printed = capsys.readouterr().out
    tokenizer = AutoTokenizer.from_pretrained(target_folder)
    expected = decode_plain(
        target, encode_prompt(tokenizer, "t9 t8 t7", raw=False), max_new_tokens=12, stop_ids=[1]
    )
    assert printed.startswith(tokenizer.decode(expected.token_ids, skip_special_tokens=True))
    assert f"{len(expected.token_ids)} tokens in " in printed
    assert "acceptance length (tau) " in printed
    assert "check: equal to the target's own greedy text" in printed


def test_plain_needs_no_drafter(target_folder, capsys):
    assert run(target_folder, "--plain", "--raw") == 0
    assert "12 tokens in 11 rounds: acceptance length (tau) 1.00" in capsys.readouterr().out


def test_rounds_can_be_shown(target_folder, drafter_folder, capsys):
    assert run(target_folder, "--drafter", str(drafter_folder), "--show-rounds", "--block-size", "1") == 0
    assert capsys.readouterr().out.splitlines()[0].count("|") == 12


def test_a_prompt_is_a_user_turn_unless_raw(target_folder):
    tokenizer = AutoTokenizer.from_pretrained(target_folder)
    assert encode_prompt(tokenizer, "t9 t8", raw=False) == [2, 9, 8, 3, 4]
    assert encode_prompt(tokenizer, "t9 t8", raw=True) == [9, 8]


def altered(folder, path, **changes):
    drafter = random_drafter(load_target(folder, dtype=torch.float32))
    return export_zlab(dataclasses.replace(drafter.config, **changes), drafter.state_dict(), path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rope_theta": 5e5}, "made for another target: rope base 500000.0 against 10000.0 of this one"),
        ({"num_target_layers": 9, "vocab_size": 60}, "vocabulary 60 against 53, target layers 9 against 8"),
    ],
)
def test_a_drafter_of_another_target_is_refused(target_folder, tmp_path, capsys, changes, message):
    assert run(target_folder, "--drafter", str(altered(target_folder, tmp_path, **changes))) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ([], "give the --drafter to draft with, or --plain"),
        (["--drafter", "no/such/folder"], "no/such/folder has no config.json"),
    ],
)
def test_mistakes_are_one_message(target_folder, capsys, extra, message):
    assert run(target_folder, *extra) == 1
    assert message in capsys.readouterr().err


def test_a_target_without_template_says_what_to_do(toy_target, capsys):
    assert run(toy_target, "--plain") == 1
    assert "no chat template; use --raw" in capsys.readouterr().err


class Bytes:
    """A tokenizer whose tokens are bytes: a character may arrive in two rounds."""

    def decode(self, ids, skip_special_tokens):
        return bytes(ids).decode(errors="replace")


def test_half_a_character_waits_for_its_other_half(capsys):
    stream = Stream(Bytes(), show_rounds=False)
    first, second = "é".encode()
    for tokens in ([97, first], [second], [98]):
        stream.write(tokens)
    assert capsys.readouterr().out == "aéb"
