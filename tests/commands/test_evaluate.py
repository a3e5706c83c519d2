import json
import shutil

import pytest

from dflash_lightning.commands.evaluate import main
from dflash_lightning.decoding.acceptance import acceptance_length
from dflash_lightning.decoding.chain import decode_chain
from dflash_lightning.decoding.tree_verify import decode_tree
from dflash_lightning.evaluation import measure
from dflash_lightning.export.formats import load_drafter, load_folder
from dflash_lightning.export.identity import identity
from dflash_lightning.export.zlab import export_zlab
from dflash_lightning.regenerate.key import KEY_VARIABLE
from tests.decoding.drafters import random_drafter
from tests.evaluation.spec_server import RunningSpecServer

WORDS = ["t9 t8 t7", "t6", "t5 t4 t9 t9 t11 t12", "t20 t21"]


@pytest.fixture
def prompts(tmp_path):
    path = tmp_path / "prompts.jsonl"
    rows = [{"prompt": text, "kind": "odd" if i % 2 else "even"} for i, text in enumerate(WORDS)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def run(target_folder, drafter, prompts, *extra):
    words = [
        "--target",
        target_folder,
        "--drafter",
        drafter,
        "--prompts",
        prompts,
        "--max-new-tokens",
        12,
        *extra,
    ]
    return main([str(word) for word in words])


def test_figures_are_those_of_decoding_prompt_by_prompt(
    target_folder,
    drafter_folder,
    target,
    prompts,
    tmp_path,
    capsys,
):
    extra = ["--tree", "6", "--category", "kind", "--batch-size", "3"]
    files = ["--json", tmp_path / "out.json", "--plot", tmp_path / "out.png"]
    assert run(target_folder, drafter_folder, prompts, *extra, *files) == 0
    found = json.loads((tmp_path / "out.json").read_text())
    drafter = load_drafter(drafter_folder)
    asked = [[2, *(int(word[1:]) for word in text.split()), 3, 4] for text in WORDS]
    options = {"max_new_tokens": 12, "stop_ids": [1]}
    chains = [decode_chain(target, drafter, ids, **options).rounds for ids in asked]
    trees = [decode_tree(target, drafter, ids, budget=6, **options).rounds for ids in asked]
    methods = found["all"]["methods"]
    assert methods["chain"]["tau_pooled"] == acceptance_length(chains).pooled
    assert methods["chain"]["tau_mean"] == acceptance_length(chains).mean
    assert methods["tree 6"]["tau_pooled"] == acceptance_length(trees).pooled
    assert [one["equal_texts"] for one in methods.values()] == [4, 4, 4]
    assert methods["plain"]["speed_up"] == 1.0
    assert set(found["categories"]) == {"odd", "even"}
    printed = capsys.readouterr().out
    assert "prompts  4, 3 at a time in one target pass" in printed
    assert "prompt lookup" in printed
    assert (tmp_path / "out.png").stat().st_size > 10_000


def test_the_file_is_of_the_drafter_that_was_measured(
    target_folder, drafter_folder, target, prompts, tmp_path, monkeypatch
):
    """Its folder is exported to again while the prompts are decoded."""
    folder = shutil.copytree(drafter_folder, tmp_path / "mine")
    wanted = identity({"": load_folder(folder)}, str(target_folder))
    other = random_drafter(target)
    other.reset_parameters(seed=5)
    really = measure.measure

    def export_and_measure(*given, **more):
        export_zlab(other.config, other.state_dict(), folder)
        return really(*given, **more)

    monkeypatch.setattr(measure, "measure", export_and_measure)
    assert run(target_folder, folder, prompts, "--json", tmp_path / "out.json") == 0
    assert json.loads((tmp_path / "out.json").read_text())["identity"] == json.loads(json.dumps(wanted))
    assert identity({"": load_folder(folder)}, str(target_folder)) != wanted


@pytest.mark.slow
def test_two_drafters_side_by_side(target_folder, drafter_folder, target, prompts, tmp_path, capsys):
    other = random_drafter(target)
    other.reset_parameters(seed=5)
    folder = export_zlab(other.config, other.state_dict(), tmp_path / "other")
    assert run(target_folder, drafter_folder, prompts, "--against", folder, "--temperature", 0.7) == 0
    printed = capsys.readouterr().out
    assert f"drafter B  {folder}" in printed
    assert "sampled at temperature 0.7, seed 0" in printed
    assert "tau B - A" in printed
    assert "chain B" in printed


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["--max-new-tokens", 0], r"--max-new-tokens 0 must be at least 1"),
        (["--batch-size", 0], r"--batch-size 0 must be at least 1"),
        (["--limit", 0], r"at least one prompt must be asked, got a limit of 0"),
        (
            ["--max-new-tokens", 510],
            r"prompts.jsonl:1 has 6 tokens and its answer may have 510, but the target",
        ),
        (["--max-new-tokens", 510], r"context holds 512; ask for at most 506 new tokens"),
        (["--block-size", 9], "block_size is 9, but this drafter was trained with 4"),
        (["--block-size", 0], "--block-size 0 must be at least 1"),
        (["--tree", -1], "--tree -1 counts the nodes of a tree: 0 or more"),
        (["--tree", 8, 4, 8], "--tree names 8 more than once; each tree is decoded once"),
        (["--plot", "x.gif"], r"name a file that ends in .png, .pdf, .svg"),
        (["--temperature", -1], "--temperature -1 divides the logits"),
        (["--device", "gpu"], "--device 'gpu' cannot be used here: Expected one of cpu, cuda"),
        (["--concurrency", 4], "--concurrency: for asking a --server, and none is named; leave out one"),
        (["--model", "m", "--timeout", 3], "--model, --timeout: for asking a --server"),
        (["--drafter", "no/such/drafter"], "no/such/drafter has no config.json"),
        (
            ["--category", "nope"],
            "--category nope: none of the 4 prompts has such a column; there are prompt, kind",
        ),
        (["--category", "category"], "--category category: none of the 4 prompts has such a column"),
        (["--prompts", "none.jsonl"], "none.jsonl does not exist"),
    ],
)
def test_mistakes_are_said_before_the_work(target_folder, drafter_folder, prompts, extra, message):
    with pytest.raises((ValueError, OSError), match=message):
        run(target_folder, drafter_folder, prompts, *extra)


def test_a_prompt_longer_than_the_context(target_folder, drafter_folder, prompts):
    prompts.write_text(json.dumps({"prompt": "t9 " * 600}) + "\n")
    with pytest.raises(ValueError, match=r"prompts.jsonl:1 has 603 tokens .* context holds 512; shorten it"):
        run(target_folder, drafter_folder, prompts)


def test_empty_prompts(target_folder, drafter_folder, prompts):
    prompts.write_text("")
    with pytest.raises(ValueError, match="prompts.jsonl is empty: it holds no row"):
        run(target_folder, drafter_folder, prompts)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocab_size": 60}, "made for another target: vocabulary 60 against 53 of this one"),
        ({"num_target_layers": 9}, "made for another target: target layers 9 against 8"),
    ],
)
def test_a_drafter_of_another_target_is_named(target_folder, altered, prompts, tmp_path, changes, message):
    folder = altered(tmp_path / "other", **changes)
    with pytest.raises(ValueError, match=f"{folder}: the drafter was {message}"):
        run(target_folder, folder, prompts)


def broken(folder, **changes):
    """The same weights under another config.json."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    for name, value in changes.items():
        (config["dflash_config"] if name in config["dflash_config"] else config)[name] = value
    path.write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"target_layer_ids": [1, 3]}, "fc.weight"),
        ({"hidden_size": 32}, "weight"),
        ({"mask_token_id": 53}, "mask_token_id"),
    ],
)
def test_weights_that_do_not_fit_their_config(target_folder, target, prompts, tmp_path, changes, message):
    drafter = random_drafter(target)
    folder = broken(export_zlab(drafter.config, drafter.state_dict(), tmp_path / "d"), **changes)
    with pytest.raises(ValueError, match=message):
        run(target_folder, folder, prompts)


def test_a_target_without_template(toy_target, drafter_folder, prompts):
    with pytest.raises(
        ValueError, match="no chat template: give .* it is served with as --chat-template FILE$"
    ):
        run(toy_target, drafter_folder, prompts)


def test_nothing_to_compare_is_said_beside_the_other_figures(
    target_folder, drafter_folder, prompts, tmp_path, capsys
):
    files = ["--json", tmp_path / "out.json", "--plot", tmp_path / "out.png"]
    extra = ["--against", drafter_folder, "--tree", "6", "--max-new-tokens", "1"]
    assert run(target_folder, drafter_folder, prompts, *extra, *files) == 0
    assert "0 prompts made rounds under both" in capsys.readouterr().out
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["all"]["methods"]["plain"]["new_tokens"] == len(WORDS)


@pytest.mark.parametrize("named", [[], ["--model", "toy"]])
def test_each_server_is_asked_for_its_models_once(prompts, named):
    with RunningSpecServer("vllm") as one, RunningSpecServer("silent") as other:
        words = ["--server", one.url, "--against", other.url, "--prompts", str(prompts), *named]
        assert main(words) == 0
        assert [server.seen()["listed"] for server in (one, other)] == [1, 1]


def test_servers_are_asked(prompts, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv(KEY_VARIABLE, "sesame")
    with RunningSpecServer("vllm") as one, RunningSpecServer("silent") as other:
        words = ["--server", one.url, "--against", other.url, "--prompts", str(prompts), "--concurrency", "2"]
        words += ["--template-arguments", '{"enable_thinking": false}']
        assert main([*words, "--json", str(tmp_path / "served.json")]) == 0
        assert set(one.seen()["keys"]) == {"Bearer sesame"}
        for server in (one, other):
            sent = [body["chat_template_kwargs"] for body in server.seen()["bodies"]]
            assert sent == [{"enable_thinking": False}] * len(WORDS)
    first, second = json.loads((tmp_path / "served.json").read_text())["servers"]
    assert (first["new_tokens"], first["tau"], second["tau"]) == (12, 2.0, None)
    printed = capsys.readouterr().out
    assert "speed of the first over the second" in printed
    assert "sesame" not in printed


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "give --target and --drafter to decode here, or --server"),
        (["--server", "http://127.0.0.1:9"], "no server answers .* is it running"),
        (
            ["--server", "http://127.0.0.1:9", "--plot", "x.png", "--tree", "8", "--drafter", "d"],
            "^--drafter, --tree, --plot: for decoding here, not for --server; leave out one or the other",
        ),
        (
            ["--server", "http://127.0.0.1:9", "--target", "t", "--dtype", "float16"],
            "^--target, --dtype: for",
        ),
        (
            ["--server", "http://127.0.0.1:9", "--chat-template", "x", "--stop-token", "t9"],
            "--chat-template and --stop-token cannot be sent to a server, .* start the server so",
        ),
        (["--server", "http://127.0.0.1:9", "--temperature", "-1"], "--temperature -1 divides the logits"),
        (["--server", "http://127.0.0.1:9", "--top-p", "0"], "--top-p 0 is a share of probability"),
        (["--server", "http://127.0.0.1:9", "--max-new-tokens", "0"], "--max-new-tokens 0 must be"),
        (
            ["--server", "http://a:1/v1", "--against", "http://a:1"],
            "would answer from its cache; name another",
        ),
    ],
)
def test_mistakes_about_servers(prompts, words, message):
    with pytest.raises((ValueError, OSError), match=message):
        main([*words, "--prompts", str(prompts)])


def test_both_servers_are_tried_before_the_first_prompt(prompts):
    with RunningSpecServer("silent") as gone:
        down = gone.url
    with RunningSpecServer("vllm") as one:
        for against, message in [(down, "no server answers"), ("localhost:1", "is no address such as")]:
            for named in ([], ["--model", "toy"]):
                with pytest.raises((ValueError, OSError), match=message):
                    main(["--server", one.url, "--against", against, "--prompts", str(prompts), *named])
        assert one.seen()["bodies"] == []


def test_what_the_first_server_did_is_shown_where_the_second_answers_nothing(prompts, tmp_path, capsys):
    prompts.write_text(
        json.dumps({"prompt": "one two [400:1]"}) + "\n" + json.dumps({"prompt": "three"}) + "\n"
    )
    with RunningSpecServer("vllm") as one, RunningSpecServer("refusing") as other:
        words = ["--server", one.url, "--against", other.url, "--prompts", str(prompts)]
        with pytest.raises(ConnectionError, match=f"{other.url} answered none of 2 requests"):
            main([*words, "--json", str(tmp_path / "served.json")])
    (only,) = json.loads((tmp_path / "served.json").read_text())["servers"]
    assert (only["url"], only["answered"]) == (one.url, 1)
    assert f"{one.url}: 1 failed: 400" in capsys.readouterr().out
