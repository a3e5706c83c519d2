"""`plan` as a user calls it: from YAML and a token store, from lengths alone, and from both."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from matplotlib.image import imread

from dflash_lightning.commands import plan as command
from dflash_lightning.data.store import TokenStore
from dflash_lightning.main import main
from dflash_lightning.plan import PlanConfig, Shuffle, plan_epoch
from tests.runs import make_store
from tests.toy import MASK

ISSUE_KEYS = {
    *("samples", "tokens", "batches", "steps_per_epoch", "steps", "padding_efficiency", "longest_run"),
    *("final_run", "equal_neighbours", "window_tv_mean", "window_tv_max", "window_tv_floor"),
    *("single_bucket_windows", "single_bucket_estimate", "alternating_share", "drift", "tenths"),
    *("straggler_linear", "straggler_quadratic", "straggler_blocks", "over_budget", "seconds", "digest"),
    *("warnings", "learning_rate", "memory", "buckets"),
}


@pytest.fixture(scope="module")
def store(tmp_path_factory, toy_target):
    lengths = np.random.default_rng(0).integers(4, 33, 60).tolist()
    return make_store(tmp_path_factory.mktemp("data"), toy_target, lengths)


@pytest.fixture
def config(tmp_path, store, toy_target):
    """A whole config of `fit`, with an interpolation in it."""
    values = {
        "trainer": {
            "accelerator": "gpu",
            "devices": 4,
            "num_nodes": 2,
            "max_epochs": 3,
            "accumulate_grad_batches": 2,
            "callbacks": [{"class_path": "GradNorm"}],
        },
        "model": {
            "target": str(toy_target),
            "mask_token": MASK,
            "block_size": 4,
            "num_anchors": 5,
            "drafter": {"num_layers": 2},
            "lr": 1e-3,
        },
        "data": {
            "store": str(store),
            "seed": 7,
            "plan": {
                "edges": [12, 20, 32],
                "max_tokens": 96,
                "max_rows": "${model.block_size}",
                "order": {"class_path": "Shuffle"},
            },
        },
    }
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(values))
    return tmp_path / "run.yaml"


@pytest.fixture
def lengths(tmp_path):
    path = tmp_path / "lengths.npy"
    np.save(path, np.random.default_rng(0).integers(1, 500, 800))
    return path


def run(*words):
    assert main(["plan", *map(str, words)]) == 0


def as_json(capsys, *words):
    """What a program reads: all of standard output is one JSON document."""
    run(*words, "--format", "json")
    return json.loads(capsys.readouterr().out)


def test_the_yaml_of_fit_is_planned_as_fit_would_plan_it(config, store, capsys):
    values = as_json(capsys, "--config", config)
    assert values.keys() >= ISSUE_KEYS
    plan = plan_epoch(
        TokenStore.open(store).samples("train"),
        PlanConfig(edges=(12, 20, 32), max_tokens=96, max_rows=4, order=Shuffle()),
        num_anchors=5,
        block_size=4,
        seed=7,
        epoch=0,
    )
    assert values["digest"] == plan.digest
    assert (values["world_size"], values["accumulate"]) == (8, 2)  # 4 devices x 2 nodes, and no GPU is here
    assert values["steps"] == 3 * values["steps_per_epoch"]
    assert values["learning_rate"]["peak"] == pytest.approx(1e-3, rel=0.05)
    assert values["memory"]["hidden_states"] > 0  # from the target's config.json
    assert [bucket["high"] for bucket in values["buckets"]] == [12, 20, 32]


def test_later_files_and_settings_win_and_the_command_wins_over_them(config, tmp_path, capsys):
    (tmp_path / "late.yaml").write_text("data: {plan: {max_rows: 2}, seed: 1}\n")
    words = ("--config", config, "--config", tmp_path / "late.yaml", "--data.seed=2", "--model.lr", "1e-2")
    values = as_json(capsys, *words)
    assert values["seed"] == 2
    assert values["learning_rate"]["peak"] == pytest.approx(1e-2, rel=0.05)
    assert max(bucket["rows"] for bucket in values["buckets"]) <= 2
    again = as_json(capsys, *words, "--seed", 3, "--max-rows", 1, "--world-size", 1, "--max-steps", 9)
    assert (again["seed"], again["world_size"], again["steps"]) == (3, 1, 9)
    assert again["batches"] == 60


def test_devices_that_depend_on_the_machine_are_assumed_and_said(config, capsys):
    run("--config", config, "--trainer.devices", "auto")
    page = capsys.readouterr().out
    assert "2 ranks x 2 batches\ntrainer.devices is auto: planned for 1 device a node; --world-size" in page


def test_lengths_take_the_place_of_the_store(config, lengths, capsys):
    words = ("--config", config, "--lengths", lengths, "--edges", "100,500", "--max-tokens", 1000)
    values = as_json(capsys, *words, "--data.store", "nowhere")
    assert values["samples"] == 800
    assert values["seed"] == 7  # the rest is the YAML's


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--model.blok_size=8"],
            "error: a run has no setting --model.blok_size=8\nmodel.blok_size: did you",
        ),
        (
            ["--config", "late.yaml"],
            "error: a run has no setting 'model.lrr'\nmodel.lrr: did you mean model.lr",
        ),
        (["--model.lr", "abc"], 'error: Parser key "model.lr":'),
        (["--config", "gone.yaml"], "File does not exist"),
    ],
)
def test_a_wrong_setting_is_refused_in_words_of_this_command(
    words, message, config, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "late.yaml").write_text("model: {lrr: 1}\n")
    with pytest.raises(SystemExit) as leaving:
        main(["plan", "--config", str(config), *words])
    assert leaving.value.code == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.startswith("tip: `python cli.py fit --help` lists the settings of a run\n")
    assert "ubcommand" not in said


def test_a_missing_store_is_said(config, capsys):
    assert main(["plan", "--config", str(config), "--data.store=nowhere"]) == 1
    assert "plan: no token store at nowhere: make it with" in capsys.readouterr().err


def test_lengths_alone_are_enough(lengths, capsys):
    values = as_json(capsys, "--lengths", lengths)
    assert values.keys() >= ISSUE_KEYS
    assert values["samples"] == 800
    assert len(values["buckets"]) == 6  # quantiles
    assert (values["learning_rate"], values["memory"], values["steps"]) == (None, None, None)
    assert 0 < values["seconds"] < 60
    assert as_json(capsys, "--lengths", lengths)["digest"] == values["digest"]


def test_a_target_gives_the_estimate_of_memory(lengths, toy_target, capsys):
    run("--lengths", lengths, "--target", toy_target, "--num-anchors", 5)
    # The default drafter has five taps, and the toy target room for them.
    assert "batch that needs most" in capsys.readouterr().out
    run("--lengths", lengths, "--target", "nowhere")
    assert "unknown: target nowhere is no folder here" in capsys.readouterr().out


def test_every_option_reaches_the_plan(lengths, tmp_path, capsys):
    np.save(tmp_path / "supervised.npy", np.ones(800, int))
    values = as_json(
        capsys,
        *("--lengths", lengths, "--supervised", tmp_path / "supervised.npy", "--edges", "100,200,300"),
        *("--oversize", "truncate", "--min-length", 20, "--max-tokens", 600, "--max-rows", 3),
        *("--max-block-tokens", 8, "--num-anchors", 2, "--block-size", 4, "--pad-multiple", 50),
        *("--super-buckets", 2, "--order", "diversity_first", "--packing", "random_order", "--tail", "drop"),
        *("--world-size", 3, "--accumulate", 2, "--seed", 4, "--epoch", 5, "--max-epochs", 2),
        *("--quadratic-budget", 1e6, "--quadratic-length", 1e3),
    )
    assert values["dropped"] > 0
    assert values["truncated"] > 0
    assert len(values["buckets"]) == 2
    assert values["max_batch_block_tokens"] == 8  # two rows of one anchor
    assert values["padded_tokens"] % 50 == 0
    assert (values["epoch"], values["seed"], values["window_batches"]) == (5, 4, 6)
    assert values["steps_per_epoch"] == (values["batches"] + 3) // 6  # a tail of three or more still steps


def test_people_get_a_page_and_warnings_beside_it(lengths, capsys):
    run("--lengths", lengths, "--edges", "50,500", "--max-tokens", 500, "--order", "diversity_first")
    shown = capsys.readouterr()
    assert "bucket  padded length  samples" in shown.out
    assert "planned and judged in" in shown.out
    assert "warning: the last" in shown.err
    assert "warning" not in shown.out


def test_static_shapes_print_their_cost(lengths, capsys):
    run("--lengths", lengths, "--static-shapes")
    assert "static shapes cost" in capsys.readouterr().out


def test_strategies_are_compared(lengths, tmp_path, capsys):
    names = "credit,diversity_first+random_order"
    words = ("--lengths", lengths, "--edges", "50,500", "--max-tokens", 500, "--accumulate", 4)
    run(*words, "--compare", names, "--plot", tmp_path / "compare.png")
    shown = capsys.readouterr()
    assert "2 strategies for" in shown.out
    assert "TV / shuffled" in shown.out
    assert "warning: diversity_first+random_order: the last" in shown.err
    assert imread(tmp_path / "compare.png").shape[1] == 1800
    values = as_json(capsys, *words, "--compare", names)
    assert [row["strategy"] for row in values["strategies"]] == names.split(",")
    assert values["strategies"][0].keys() >= ISSUE_KEYS - {"seconds"}
    assert values["seconds"] > 0


def test_what_several_strategies_are_warned_of_is_said_once(lengths, capsys):
    run("--lengths", lengths, "--edges", "50,500", "--max-tokens", 500, "--compare", "credit,shuffle")
    told = capsys.readouterr().err
    assert told.count("warning") == 1
    assert told.startswith("warning: credit, shuffle: bucket 1 (51 to 500 tokens) makes")


def test_a_plot_is_written_and_standard_output_stays_clean(lengths, tmp_path, capsys):
    values = as_json(capsys, "--lengths", lengths, "--plot", tmp_path / "plan.png")
    assert values["batches"] > 0
    assert imread(tmp_path / "plan.png").shape[:2] == (1500, 1800)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "nothing to plan: give --lengths file.npy, or --config with a token store"),
        (["--lengths", "nowhere.npy"], "--lengths nowhere.npy: there is no such file"),
        (["--model.lr", "1"], "--model.lr is a setting of `fit`, which needs --config"),
        (
            ["--supervised", "1.5"],
            "--supervised is a share between 0 and 1, or a .npy file of counts, got 1.5",
        ),
        (["--world-size", "0"], "--world-size must be at least 1, got 0"),
        (["--world-size", "900"], "800 samples cannot feed 900 ranks"),
        (["--edges", "100,200"], "samples are longer than 200 tokens, the last of plan.edges"),
        (["--order", "best"], "no order named 'best'; choose one of credit, diversity_first, shuffle"),
        (["--compare", "credit,best"], "--compare knows no strategy 'best'; choose of credit"),
        (["--plot", "plan.xyz"], "--plot plan.xyz: name a file that ends in .png, .pdf, .svg"),
        (["--plot", "plan"], "--plot plan: name a file"),
        (["--max-epochs", "-2"], "--max-epochs must be at least 0, or -1 for no limit, got -2"),
    ],
)
def test_mistakes_are_told_in_one_message(words, message, lengths, capsys):
    own = words if words[:1] in ([], ["--lengths"]) else ["--lengths", str(lengths), *words]
    assert main(["plan", *own]) == 1
    shown = capsys.readouterr()
    assert f"plan: {message}" in shown.err or message in shown.err
    assert "Traceback" not in shown.err
    assert shown.out == ""


def test_many_samples_are_announced(lengths, capsys, monkeypatch):
    monkeypatch.setattr(command, "MANY_SAMPLES", 800)
    run("--lengths", lengths)
    assert capsys.readouterr().err.startswith("planning 800 samples ...\n")


def test_the_help_teaches(capsys):
    with pytest.raises(SystemExit) as leaving:
        main(["plan", "--help"])
    assert leaving.value.code == 0
    text = capsys.readouterr().out
    for word in ("total variation", "straggler", "--compare NAMES", "cli.py plan --lengths lengths.npy"):
        assert word in text
    assert "default: null" not in text


@pytest.mark.slow
def test_the_committed_configs_are_planned(lengths, capsys):
    """The large ones name stores and targets that are not here: lengths stand in, memory is unknown."""
    configs = Path(__file__).parents[2] / "configs"
    words = ("--config", configs / "qwen3_8b.yaml", "--config", configs / "documented_run.yaml")
    values = as_json(capsys, *words, "--lengths", lengths)
    assert values["world_size"] == 8
    assert values["memory"] is None
    assert "target Qwen/Qwen3-8B is no folder here" in values["memory_unknown"]
