"""The command: options, messages, both backends, and an output that `prepare` reads."""

import re
import shutil

import pytest
import torch
from transformers import AutoTokenizer

from dflash_lightning.commands import prepare
from dflash_lightning.commands.regenerate import main
from dflash_lightning.data.store import TokenStore
from dflash_lightning.decoding.plain import decode_plain
from dflash_lightning.target.loading import load_target
from tests.data.chats import row
from tests.regenerate.answering import question, read_rows, write_rows
from tests.regenerate.conftest import chat_server as chat_server
from tests.regenerate.toy_chat import TEMPLATE, save_chat_target
from tests.toy import toy_model

ROWS = [row("t04", "t03", "t07", "t03"), question("t13"), row("t08", "t03")]


@pytest.fixture(scope="module")
def target_folder(tmp_path_factory):
    return save_chat_target(tmp_path_factory.mktemp("chat") / "target")


@pytest.fixture
def files(tmp_path):
    """--input and --output."""
    given = write_rows(tmp_path / "in.jsonl", ROWS)
    return ["--input", str(given), "--output", str(tmp_path / "out.jsonl")]


def local(target_folder, *more):
    return ["--target", str(target_folder), "--device", "cpu", "--dtype", "float32", *more]


def test_the_targets_own_answers_become_a_token_store(files, target_folder, tmp_path, capsys):
    stops = ["--stop-token", *(f"t{i}" for i in range(30, 36))]  # so that random text ends
    options = local(target_folder, "--max-new-tokens", "60", "--batch-size", "2", *stops, "--max-failed", "0")
    assert main([*files, *options]) == 0
    shown = capsys.readouterr().out
    assert f"{tmp_path}/out.jsonl: 3 chats, " in shown
    assert "this run 3 rows in 0:00:0" in shown
    written = read_rows(tmp_path / "out.jsonl")
    target, tokenizer = (
        load_target(target_folder, dtype=torch.float32),
        AutoTokenizer.from_pretrained(target_folder),
    )
    for given in written:
        for turn, message in enumerate(given["messages"]):
            if message["role"] == "assistant":
                text = tokenizer.apply_chat_template(
                    given["messages"][:turn], tokenize=False, add_generation_prompt=True
                )
                ids = tokenizer(text, add_special_tokens=False).input_ids
                alone = decode_plain(target, ids, max_new_tokens=60, stop_ids=[1, *range(30, 36)])
                assert message["content"] == tokenizer.decode(alone.token_ids[:-1])
    store = [*("--input", str(tmp_path / "out.jsonl")), *("--target", str(target_folder))]
    assert prepare.main([*store, "--output", str(tmp_path / "store"), "--validation-share", "0"]) == 0
    assert TokenStore.open(tmp_path / "store").manifest.kept["train"] == 3


def test_a_server_is_asked_with_every_option(files, chat_server, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("DFLASH_SERVER_KEY", "sk-from-environment")
    options = [
        *("--server", chat_server.url, "--model", "toy-2", "--max-new-tokens", "77", "--temperature", "0.6"),
        *("--top-k", "5", "--top-p", "0.9", "--seed", "4", "--turns", "last", "--concurrency", "2"),
        *("--template-arguments", '{"enable_thinking": false}', "--request", '{"min_p": 0.1}'),
        *("--timeout", "9", "--deadline", "10", "--attempts", "2"),
    ]
    assert main([*files, *options]) == 0
    seen = chat_server.seen()
    sent = [body for body in seen["bodies"] if body["model"] == "toy-2"]
    assert len(sent) == 3  # the last turn of each
    wanted = {"max_tokens": 77, "temperature": 0.6, "top_k": 5, "top_p": 0.9, "min_p": 0.1}
    assert all(wanted.items() <= body.items() for body in sent)
    assert all(body["chat_template_kwargs"] == {"enable_thinking": False} for body in sent)
    assert "Bearer sk-from-environment" in seen["keys"]
    shown = capsys.readouterr()
    assert "sk-from-environment" not in shown.out + shown.err
    assert "out.jsonl: 3 chats, 21 generated tokens" in shown.out


def test_what_is_not_ok_is_shown_with_its_places(chat_server, tmp_path, capsys):
    given = write_rows(tmp_path / "in.jsonl", [*ROWS, {"text": "x"}, question("shown [length]")])
    assert (
        main(["--input", str(given), "--output", str(tmp_path / "o.jsonl"), "--server", chat_server.url]) == 0
    )
    shown = capsys.readouterr().out
    assert "skipped: no messages, conversations, prompt or turns            1\n" in shown
    assert f"{given}:4: columns: text" in shown
    assert f"  1 x truncated: an answer reached the limit of new tokens\n      {given}:5: answer 1" in shown


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "give either the --target to run here, or the --server to ask"),
        (["--target", "a", "--server", "http://h"], "give either the --target"),
        (["--server", "http://127.0.0.1:9"], "no server answers (http://127.0.0.1:9/v1/models: Connection"),
        (["--server", "localhost"], "server 'localhost' is no address"),
        (["--target", "gone"], "gone"),
        (["--target", "gone", "--top-p", "2"], "top_p is a share above 0 and at most 1, got 2.0"),
        (["--target", "gone", "--output", "o.txt"], "output o.txt must end in one of .jsonl"),
    ],
)
def test_bad_input_is_one_message_and_exit_code_1(options, message, files, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([*files, *options]) == 1
    shown = capsys.readouterr().err
    assert shown.startswith("regenerate: ")
    assert message in shown
    assert not (tmp_path / "out.jsonl").exists()


def test_answers_whose_text_gives_other_tokens_are_counted(files, toy_target, tmp_path, capsys):
    folder = tmp_path / "target"
    shutil.copytree(toy_target, folder)  # its end token t1 is cut out of t10 to t19 as well
    (folder / "template").write_text(TEMPLATE.replace("t0", "t"))
    write_rows(tmp_path / "in.jsonl", [question(f"t{n} t{n + 20}") for n in range(20, 30)])
    options = local(folder, "--chat-template", str(folder / "template"), "--truncated", "keep")
    assert main([*files, *options, "--max-new-tokens", "3"]) == 0
    told = capsys.readouterr().out
    status = read_rows(tmp_path / "out.jsonl.status")
    count = sum(line["retokenized"] for line in status)
    assert 0 < count < 10
    assert f"\n{count} of 10 answers give other tokens when their text is read again" in told


def test_a_target_without_template_is_one_message(files, toy_target, capsys):
    assert main([*files, *local(toy_target)]) == 1
    assert "the target's tokenizer has no chat template" in capsys.readouterr().err


def test_other_settings_do_not_go_on_with_unfinished_work(files, target_folder, capsys):
    cut = local(target_folder, "--max-new-tokens", "1")  # every answer is cut off
    assert main([*files, *cut]) == 1
    assert "none of the 3 rows can be used" in capsys.readouterr().err
    assert main([*files, *local(target_folder, "--max-new-tokens", "9")]) == 1
    assert "max_new_tokens: 1 before, 9 now. Give the former settings" in capsys.readouterr().err


def test_other_weights_in_the_same_folder_do_not_go_on_and_the_same_ones_elsewhere_do(
    files, tmp_path, capsys
):
    folder = save_chat_target(tmp_path / "target")
    cut = ("--max-new-tokens", "1")  # every answer is cut off, so that the work stays unfinished
    assert main([*files, *local(folder, *cut)]) == 1
    folder.rename(tmp_path / "moved")
    assert main([*files, *local(tmp_path / "moved", *cut)]) == 1
    assert "unfinished work with other settings" not in capsys.readouterr().err
    toy_model(seed=1).save_pretrained(tmp_path / "moved")
    assert main([*files, *local(tmp_path / "moved", *cut)]) == 1
    told = capsys.readouterr().err
    assert re.search(
        r"other settings: target: {'digest': '\w+', 'name': '.*/target'} before, {'digest': ", told
    )
    assert "Give the former settings to go on, or delete the folder" in told


def test_a_row_with_half_a_surrogate_pair_is_skipped_and_the_run_goes_on(
    files, target_folder, tmp_path, capsys
):
    write_rows(tmp_path / "in.jsonl", [question("t03"), question("t03 \ud83d"), question("t04")])
    assert main([*files, *local(target_folder, "--truncated", "keep", "--max-new-tokens", "3")]) == 0
    assert [line["status"] == "skipped" for line in read_rows(tmp_path / "out.jsonl.status")] == [
        False,
        True,
        False,
    ]
    shown = capsys.readouterr().out
    assert "skipped: the chat holds half of a surrogate pair, which is no character" in shown
    assert f"{tmp_path}/in.jsonl:2: '\\ud83d' at character" in shown


def test_help_teaches(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    shown = capsys.readouterr().out
    assert "python cli.py regenerate --input chats.jsonl --output mine.jsonl --server http" in shown
    assert "DFLASH_SERVER_KEY" in shown
