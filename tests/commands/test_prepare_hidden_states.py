import re

import pytest
import torch

from dflash_lightning.commands import prepare, prepare_hidden_states
from dflash_lightning.target.stored.reading import StoredStates
from tests.runs import make_store

YAML = """
trainer: {{accelerator: cpu, logger: false}}
model:
  target: {target}
  target_settings: {{dtype: float32}}
  mask_token: 52
  drafter: {{num_layers: 2, num_taps: 3}}
  objective: {objective}
  hidden_states: {output}
data: {{store: {store}}}
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory, toy_target):
    return make_store(tmp_path_factory.mktemp("store"), toy_target, [9, 14, 6, 11], held_out=[8, 12])


@pytest.fixture
def words(toy_target, store, tmp_path):
    """The shortest command that works without a YAML."""
    options = {"--target": toy_target, "--store": store, "--taps": "1,5", "--output": tmp_path / "states"}
    return ["--hidden-states", *(str(word) for pair in options.items() for word in pair)]


def test_a_store_becomes_hidden_states_and_the_size_is_said_before(words, tmp_path, capsys):
    assert prepare.main([*words, "--dtype", "float32"]) == 0  # as `prepare`: the flag decides
    shown = capsys.readouterr().out
    # 60 tokens x 2 taps x 64 features x 4 bytes
    assert f"{tmp_path}/states: 60 tokens x 512 bytes = 0.0 MiB (float32; layers 1, 5)" in shown
    assert re.search(
        r"6 samples in 1 shards, 0\.0 MiB, in \d+\.\d s\. To train with them: --model.hidden", shown
    )
    manifest = StoredStates.open(tmp_path / "states").manifest
    assert manifest.samples == {"train": 4, "validation": 2}
    assert manifest.made_with["torch"] == torch.__version__


@pytest.mark.parametrize("objective", ["CrossEntropy", "Distillation"])
def test_with_the_yaml_of_a_run_they_are_those_the_run_asks_for(objective, toy_target, store, tmp_path):
    output, path = tmp_path / "states", tmp_path / "run.yaml"
    path.write_text(YAML.format(target=toy_target, store=store, output=output, objective=objective))
    assert prepare_hidden_states.main(["--hidden-states", "--config", str(path)]) == 0
    identity = StoredStates.open(output).manifest.identity
    assert identity.taps == (1, 3, 5)  # num_taps: 3, evenly spaced over 8 layers
    assert identity.dtype == "float32"
    assert identity.final == (objective == "Distillation")


@pytest.mark.slow
def test_options_and_dotted_words_win_over_the_yaml(toy_target, store, tmp_path):
    output, path = tmp_path / "other", tmp_path / "run.yaml"
    path.write_text(YAML.format(target="nowhere", store=store, output="none", objective="CrossEntropy"))
    options = ["--target", str(toy_target), "--taps", "2", "--final", "--output", str(output)]
    words = ["--hidden-states", "--config", str(path), *options, "--model.target_settings.dtype", "bfloat16"]
    assert prepare_hidden_states.main(words) == 0
    identity = StoredStates.open(output).manifest.identity
    assert (identity.taps, identity.final, identity.dtype) == ((2,), True, "bfloat16")


@pytest.mark.parametrize(
    ("dropped", "message"),
    [
        ("--taps", "give --taps, or --config with the YAML of the run"),
        ("--store", "give --store, or --config"),
        ("--target", "give --target, or --config"),
        ("--output", "give --output, or --config"),
    ],
)
def test_what_is_left_open_is_asked_for(words, dropped, message):
    at = words.index(dropped)
    with pytest.raises(ValueError, match=message):
        prepare_hidden_states.main([*words[:at], *words[at + 2 :]])


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["--taps", "1;2"], "--taps is a list of layers such as 1,9,17, got '1;2'"),
        (["--taps", "1,8"], r"taps \[8\] are not layers of the target, which has layers 0 to 7"),
        (["--max-tokens", "0"], "--max-tokens must be at least 1, got 0"),
        (["--shard-gib", "0"], "--shard-gib must be above 0, got 0.0"),
        (["--model.lr", "1"], "--model.lr is a setting of `fit`, which needs --config"),
    ],
)
def test_nonsense_is_refused_before_the_target_is_loaded(words, extra, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        prepare_hidden_states.main([*words, *extra])
    assert not (tmp_path / "states.partial").exists()


def test_verify_reads_every_byte(words, tmp_path, capsys):
    prepare_hidden_states.main([*words, "--shard-gib", "0.00001"])
    verify = ["--hidden-states", "--verify", "--output", str(tmp_path / "states")]
    assert prepare_hidden_states.main(verify) == 0
    assert "6 samples" in capsys.readouterr().out.splitlines()[-1]
    path = tmp_path / "states" / "shard-00001.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match="shard-00001.safetensors are damaged"):
        prepare_hidden_states.main(verify)
    with pytest.raises(ValueError, match="--verify needs --output"):
        prepare_hidden_states.main(verify[:2])


def test_help_of_both_names_the_other(capsys):
    for words, expected in ((["--help"], "--hidden-states"), (["--hidden-states", "--help"], "--shard-gib")):
        with pytest.raises(SystemExit):
            prepare.main(words)
        assert expected in capsys.readouterr().out
