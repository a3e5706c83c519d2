import json
import shutil

import pytest

from dflash_lightning.commands.prepare import main
from dflash_lightning.data.store import TokenStore
from tests.data import chats
from tests.data.chats import row
from tests.data.test_sources import write_json

CHATS = [row(f"Question {n}", f"Answer {n}") for n in range(30)]


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    """A folder with what prepare reads of a target: the tokenizer, and where the target stops."""
    folder = tmp_path_factory.mktemp("target")
    chats.tokenizer().save_pretrained(folder)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [256, 258]}))
    return folder


@pytest.fixture
def arguments(target, tmp_path):
    """The shortest command that works."""
    chats_file = write_json(tmp_path / "chats.jsonl", CHATS)
    return ["--input", str(chats_file), "--target", str(target), "--output", str(tmp_path / "store")]


def test_chats_become_a_store_and_every_row_is_accounted_for(arguments, tmp_path, capsys):
    write_json(tmp_path / "chats.jsonl", [*CHATS, {"text": "x"}])
    assert main([*arguments, "--validation-share", "0.3", "--workers", "1"]) == 0
    store = TokenStore.open(tmp_path / "store")
    shown = capsys.readouterr().out
    assert "kept for train" in shown
    assert "kept for validation" in shown
    assert "skipped: no messages, conversations, or input_ids + loss_mask            1\n" in shown
    assert f"{tmp_path}/chats.jsonl:31: columns: text" in shown
    tokens = sum(store.manifest.tokens.values())
    assert f"{tokens:,} tokens, {sum(store.manifest.supervised.values()):,} of them supervised" in shown
    assert store.manifest.stop_ids == (256, 258)  # the target's own, not only the tokenizer's


def test_every_option_reaches_the_store(arguments, tmp_path, capsys):
    (tmp_path / "template.jinja").write_text(chats.ADDS_THINKING)
    held_out = write_json(tmp_path / "held_out.jsonl", [row("Held", "out")])
    options = [
        *(
            "--chat-template",
            str(tmp_path / "template.jinja"),
            "--template-arguments",
            '{"enable_thinking": false}',
        ),
        *("--stop-token", "</think>", "--turns", "last", "--max-length", "40", "--truncate"),
        *("--validation-input", str(held_out), "--max-skipped", "0.9", "--workers", "1"),
    ]
    long = row("Hello", "Hi" * 100)
    write_json(tmp_path / "chats.jsonl", [long, row("Hello", "Hi", "And?", "No.")])
    assert main([*arguments, *options]) == 0
    manifest = TokenStore.open(tmp_path / "store").manifest
    assert manifest.template == chats.ADDS_THINKING
    assert manifest.template_arguments == {"enable_thinking": False}
    assert manifest.stop_ids == (256, 258, 260)
    assert (manifest.turns, manifest.max_length, manifest.truncated) == ("last", 40, 1)
    assert manifest.skipped == {
        "no two supervised tokens in a row, so no anchor": 1
    }  # its last turn was cut off
    assert "1 of the kept rows were cut at 40 tokens" in capsys.readouterr().out


@pytest.mark.parametrize(("positions", "longer"), [(None, 0), (100, 0), (40, 2)])
def test_rows_beyond_the_targets_context_are_told_before_fit_refuses_them(
    positions, longer, target, arguments, tmp_path, capsys
):
    folder = tmp_path / "target"
    shutil.copytree(target, folder)
    if positions:
        facts = {"model_type": "llama", "max_position_embeddings": positions}
        (folder / "config.json").write_text(json.dumps(facts))
    arguments[arguments.index(str(target))] = str(folder)
    write_json(tmp_path / "chats.jsonl", [*CHATS, row("Hello", "H" * 50), row("Hello", "H" * 51)])
    assert main([*arguments, "--validation-share", "0.3", "--workers", "1"]) == 0
    shown = capsys.readouterr().out
    lengths = [
        n for s in ("train", "validation") for n in TokenStore.open(tmp_path / "store").samples(s).lengths
    ]
    assert (f"{longer} rows are longer than the {positions} positions of {folder}" in shown) == (longer > 0)
    assert (f"(the longest has {max(lengths)} tokens)" in shown) == (longer > 0)
    assert (f"prepare again with --max-length {positions}" in shown) == (longer > 0)


def test_options_may_stand_in_a_file_and_the_command_line_wins(arguments, tmp_path):
    (tmp_path / "prepare.yaml").write_text(
        f"input: [{tmp_path}/chats.jsonl]\nmax_length: 7\nvalidation_share: 0.0\n"
    )
    without_input = arguments[2:]
    assert main(["--config", str(tmp_path / "prepare.yaml"), *without_input, "--max-length", "300"]) == 0
    manifest = TokenStore.open(tmp_path / "store").manifest
    assert (manifest.max_length, manifest.validation_share) == (300, 0.0)


def test_help_teaches(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    shown = capsys.readouterr().out
    assert "python cli.py prepare --input chats.jsonl --target smollm2-135m-instruct" in shown
    assert '{"messages": [{"role": "user", "content": ...}, ...]}' in shown


def test_an_unknown_option_is_an_error(arguments, capsys):
    with pytest.raises(SystemExit):
        main([*arguments, "--max-lenght", "7"])
    assert "--max-lenght" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "content", "message"),
    [
        (["--input", "gone.jsonl"], None, "input gone.jsonl does not exist"),
        (["--input", "x*.jsonl"], None, r"no file matches the glob 'x*.jsonl'"),
        ([], "", "chats.jsonl is empty: it holds no row"),
        ([], '{"messages": \n', "chats.jsonl:1: Expecting value: line 2"),
        ([], '{"text": "x"}\n', "no messages, conversations, or input_ids + loss_mask"),
        ([], '{"messages": [{"role": "narrator", "content": "x"}]}\n', "chats.jsonl:1: 'narrator'"),
        (
            [],
            '{"messages": [{"role": "user", "content": "x"}]}\n',
            "`python cli.py regenerate` lets the target",
        ),
        ([], '{"input_ids": [1, 999], "loss_mask": [1, 1]}\n', "chats.jsonl:1: id 999, vocabulary 261"),
        (["--target", "gone"], None, "gone"),
        (["--target", "."], None, "has no tokenizer (none of tokenizer.json"),
        (["--chat-template", "gone.jinja"], None, "gone.jinja"),
        (["--max-length", "1"], None, "max_length must be at least 2"),
        (["--output", "."], None, "already exists; choose another --output, or replace it with --overwrite"),
    ],
)
def test_bad_input_is_one_message_and_exit_code_1(
    options, content, message, arguments, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    if content is not None:
        (tmp_path / "chats.jsonl").write_text(content)
    assert main([*arguments, *options]) == 1
    shown = capsys.readouterr().err
    assert shown.startswith("prepare: ")
    assert message in shown
    assert not (tmp_path / "store").exists()


def test_a_tokenizer_without_template_is_one_message(arguments, tmp_path, capsys):
    chats.tokenizer(None).save_pretrained(tmp_path / "bare")
    assert main([*arguments, "--target", str(tmp_path / "bare")]) == 1
    assert "prepare: the tokenizer has no chat template" in capsys.readouterr().err
