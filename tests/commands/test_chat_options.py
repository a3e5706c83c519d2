"""The template, its arguments and the ends of answers mean the same in every command that has them."""

import json

import pytest

from dflash_lightning.commands import evaluate, generate, prepare, regenerate
from dflash_lightning.data.store import TokenStore
from dflash_lightning.decoding.chain import decode_chain
from dflash_lightning.decoding.plain import decode_plain
from dflash_lightning.export.formats import load_drafter
from tests.commands.test_generate import asked_ids

COMMANDS = [prepare, regenerate, evaluate, generate]
OPTIONS = ("chat_template", "template_arguments", "stop_token")
TEMPLATE = (  # an answer starts with t7, and with t8 where nothing is to be thought
    "{% set start = 't7 t8' if enable_thinking is defined and not enable_thinking else 't7' %}"
    "{% for m in messages %}{{ start if m.role == 'assistant' else 't5' }} {{ m.content }} t6 {% endfor %}"
    "{% if add_generation_prompt %}{{ start }}{% endif %}"
)
QUIET = '{"enable_thinking": false}'
WORDS = ["t9 t8 t7", "t6", "t20 t21"]


@pytest.fixture
def template(tmp_path):
    path = tmp_path / "template.jinja"
    path.write_text(TEMPLATE)
    return path


def test_one_help_for_all_commands():
    actions = [
        {a.dest: (a.option_strings, a.help, a.default) for a in command.make_parser()._actions}
        for command in COMMANDS
    ]
    for option in OPTIONS:
        assert len({str(action[option]) for action in actions}) == 1


@pytest.mark.parametrize(("arguments", "asked"), [("{}", [5, 9, 30, 6, 7]), (QUIET, [5, 9, 30, 6, 7, 8])])
def test_generate_asks_with_the_template_that_prepare_trains_with(
    target_folder, template, tmp_path, arguments, asked
):
    words = ["--chat-template", str(template), "--template-arguments", arguments]
    assert asked_ids(target_folder, "t9 t30", *words) == asked
    chat = [{"role": "user", "content": "t9 t30"}, {"role": "assistant", "content": "t32 t33"}]
    (tmp_path / "chats.jsonl").write_text(json.dumps({"messages": chat}) + "\n")
    where = ["--input", str(tmp_path / "chats.jsonl"), "--target", str(target_folder)]
    store = ["--output", str(tmp_path / "store"), "--validation-share", "0", "--stop-token", "t6"]
    assert prepare.main([*where, *store, *words]) == 0
    ids, mask = TokenStore.open(tmp_path / "store").row("train", 0)
    assert ids.tolist() == [*asked, 32, 33, 6]
    assert mask.tolist() == [*[0] * len(asked), 1, 1, 1]


def test_evaluate_asks_with_the_named_template_and_stops_at_the_named_tokens(
    target_folder, drafter_folder, target, template, tmp_path
):
    drafter = load_drafter(drafter_folder)
    asked = [[5, *(int(word[1:]) for word in text.split()), 6, 7, 8] for text in WORDS]
    whole = [decode_plain(target, ids, max_new_tokens=12, stop_ids=[1]).token_ids for ids in asked]
    stop = max(whole, key=len)[4]
    wanted = [decode_chain(target, drafter, ids, max_new_tokens=12, stop_ids=[1, stop]) for ids in asked]
    assert sum(len(one.token_ids) for one in wanted) < sum(map(len, whole))  # else it proves nothing
    (tmp_path / "prompts.jsonl").write_text("".join(json.dumps({"prompt": text}) + "\n" for text in WORDS))
    words = ["--target", target_folder, "--drafter", drafter_folder, "--max-new-tokens", 12]
    words += ["--prompts", tmp_path / "prompts.jsonl", "--json", tmp_path / "found.json"]
    words += ["--chat-template", template, "--template-arguments", QUIET, "--stop-token", f"t{stop}"]
    assert evaluate.main([str(word) for word in words]) == 0
    found = json.loads((tmp_path / "found.json").read_text())["all"]["methods"]["chain"]
    assert found["new_tokens"] == sum(len(one.token_ids) for one in wanted)
    assert found["rounds"] == sum(len(one.rounds) for one in wanted)


def test_generate_stops_at_the_named_tokens(target_folder, target, template, capsys):
    ids = asked_ids(target_folder, "t9", "--chat-template", str(template))
    whole = decode_plain(target, ids, max_new_tokens=12, stop_ids=[1]).token_ids
    stop = whole[4]
    words = ["--target", str(target_folder), "--prompt", "t9", "--plain", "--max-new-tokens", "12"]
    words += ["--chat-template", str(template), "--stop-token", f"t{stop}"]
    assert generate.main(words) == 0
    shown = capsys.readouterr().out.splitlines()[0].split()
    assert shown == [f"t{token}" for token in whole[: whole.index(stop) + 1]]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--chat-template", "gone.jinja"], r"gone\.jinja"),
        (["--chat-template", "BINARY"], "--chat-template .*template.jinja is no text in UTF-8"),
        (["--stop-token", "t99"], "--stop-token 't99' is not one token of the target's vocabulary"),
        (["--template-arguments", '{"tools": 1}'], "the template refuses the chat .*multiple values"),
    ],
)
def test_mistakes(target_folder, template, words, message):
    if "BINARY" in words:
        template.write_bytes(b"\xff\xfe")
        words = ["--chat-template", str(template)]
    with pytest.raises((ValueError, OSError), match=message):
        asked_ids(target_folder, "t9", *words)


def test_regenerate_sends_no_template_to_a_server(tmp_path, capsys):
    (tmp_path / "in.jsonl").write_text(json.dumps({"prompt": "t9"}) + "\n")
    files = ["--input", str(tmp_path / "in.jsonl"), "--output", str(tmp_path / "out.jsonl")]
    assert regenerate.main([*files, "--server", "http://127.0.0.1:9", "--stop-token", "t9"]) == 1
    assert "regenerate: --stop-token cannot be sent to a server" in capsys.readouterr().err
