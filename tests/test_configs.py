"""Every config in configs/ parses, prints, and passes the checks that need no weights."""

from pathlib import Path

import numpy as np
import pytest
import yaml
from transformers import LlamaConfig, Qwen3Config

from dflash_lightning.lightning_cli import DFlashCLI, parse_cli, read_config
from dflash_lightning.plan.epoch import plan_epoch
from dflash_lightning.plan.samples import Samples
from dflash_lightning.training.build import drafter_config
from tests.slow import slow

CONFIGS = Path(__file__).parents[1] / "configs"
WHOLE = ["tiny", "demo", "qwen3_8b", "llama3_8b"]


def parse(*names, extra=()):
    """The instantiated module and DataModule of stacked configs; nothing is loaded, nothing runs."""
    words = [word for name in names for word in ("--config", str(CONFIGS / f"{name}.yaml"))]
    return parse_cli([*words, *extra])


@pytest.mark.parametrize("name", [WHOLE[0], *slow(*WHOLE[1:])])
def test_a_config_prints_what_would_run(name, capsys):
    from dflash_lightning.main import main

    with pytest.raises(SystemExit) as leaving:
        main(["fit", "--config", str(CONFIGS / f"{name}.yaml"), "--print_config"])
    assert leaving.value.code == 0
    printed = yaml.safe_load(capsys.readouterr().out)
    assert printed["model"]["target"]
    assert printed["trainer"]["use_distributed_sampler"] is False
    assert printed["trainer"]["reload_dataloaders_every_n_epochs"] == 1


QWEN3_8B = Qwen3Config(
    vocab_size=151936, hidden_size=4096, intermediate_size=12288, num_hidden_layers=36,
    num_attention_heads=32, num_key_value_heads=8, head_dim=128, max_position_embeddings=40960,
    rope_parameters={"rope_type": "default", "rope_theta": 1e6}, bos_token_id=151643, eos_token_id=151645,
)  # fmt: skip
LLAMA31_8B = LlamaConfig(
    vocab_size=128256, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32,
    num_attention_heads=32, num_key_value_heads=8, max_position_embeddings=131072,
    rope_parameters={"rope_type": "default", "rope_theta": 5e5}, bos_token_id=128000, eos_token_id=128009,
)  # fmt: skip


class ReservedTokens:
    """What is asked of Llama 3's tokenizer here: the id of its first reserved token."""

    def get_vocab(self):
        return {"<|reserved_special_token_0|>": 128002}


@pytest.mark.parametrize(
    ("names", "target", "tokenizer", "taps", "mask_token"),
    [
        (["qwen3_8b"], QWEN3_8B, None, (1, 9, 17, 25, 33), 151669),
        (["qwen3_8b", "documented_run"], QWEN3_8B, None, (1, 9, 17, 25, 33), 151669),
        (["llama3_8b"], LLAMA31_8B, ReservedTokens(), (1, 8, 15, 22, 29), 128002),
    ],
)
def test_the_large_configs_fit_their_targets(names, target, tokenizer, taps, mask_token):
    cli = parse(*names, extra=["--trainer.accelerator=cpu", "--trainer.devices=1", "--trainer.strategy=auto"])
    module, data = cli.model, cli.datamodule
    config = drafter_config(
        target, tokenizer, module.shape, block_size=module.block_size, mask_token=module.mask_token
    )
    assert config.target_layer_ids == taps
    assert config.mask_token_id == mask_token
    assert (config.block_size, module.num_anchors) == (16, 512)
    lengths = np.random.default_rng(0).integers(50, 8193, 3000)
    samples = Samples(lengths=lengths, supervised=lengths // 2)
    plan = plan_epoch(samples, data.plan_config, num_anchors=512, block_size=16, seed=0, epoch=0)
    assert len(plan.edges) == 6
    assert plan.edges[-1] == 8192
    assert sorted(plan.sample_ids.tolist()) == list(range(3000))


def test_the_documented_run_is_the_documented_one():
    data = parse("qwen3_8b", "documented_run", extra=["--trainer.accelerator=cpu", "--trainer.devices=1",
                                                      "--trainer.strategy=auto"]).datamodule  # fmt: skip
    plan = data.plan_config
    assert plan.edges == (1216, 1728, 2240, 2784, 3296, 8192)
    assert (plan.max_tokens, plan.max_rows, plan.max_block_tokens) == (49_152, 64, 0)
    assert (type(plan.packing).__name__, type(plan.order).__name__) == ("RandomOrder", "DiversityFirst")


def test_a_fragment_adds_to_the_callbacks_or_replaces_them():
    names = [type(callback).__name__ for callback in parse("tiny").trainer.callbacks]
    added = [type(c).__name__ for c in parse("tiny", "callbacks/early_stop").trainer.callbacks]
    replaced = [type(c).__name__ for c in parse("tiny", "callbacks/none").trainer.callbacks]
    assert "GradNorm" in names
    assert set(added) == {*names, "EarlyStopping"}
    assert not {"GradNorm", "BucketMix", "StopOnSignal"} & set(replaced)


@pytest.mark.parametrize("name", [WHOLE[0], *slow(*WHOLE[1:])])
def test_one_word_moves_the_checkpoints_into_a_bucket(name):
    """For that S3Checkpoint stands last; by itself it writes below the run's folder."""
    words = [f"--config={CONFIGS / name}.yaml", "--trainer.default_root_dir=runs/mine"]
    moved = ["--trainer.callbacks.uri=s3://b/x", "--trainer.callbacks.settings.path_style=true"]
    places = [read_config([*words, *more])["trainer"]["callbacks"][-1]["init_args"] for more in ([], moved)]
    assert [place["uri"] for place in places] == ["runs/mine/checkpoints", "s3://b/x"]
    assert [place["settings"]["path_style"] for place in places] == [False, True]
    assert {place["monitor"] for place in places} == {"val/tau"}


def test_interpolation_reaches_every_place(tmp_path):
    """`${model.block_size}` follows a later file and the command line."""
    late = tmp_path / "late.yaml"
    late.write_text("data: {plan: {max_rows: '${model.block_size}'}}\n")
    words = ["--config", str(CONFIGS / "tiny.yaml"), "--config", str(late), "--model.block_size=6"]
    assert parse_cli(words).datamodule.plan_config.max_rows == 6


def test_block_size_and_seed_are_said_once():
    cli = parse("tiny", extra=["--model.block_size=5", "--data.seed=7"])
    assert cli.datamodule.block_size == 5
    assert cli.model.seed == 7


@pytest.mark.parametrize(("word", "causal"), [("false", False), ("true", True), ("sliding", "sliding")])
def test_causality_within_a_block_is_a_word_of_the_command_line(word, causal):
    cli = parse("tiny", extra=[f"--model.drafter.causal_in_block={word}"])
    assert cli.model.shape.causal_in_block == causal


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model.drafter.causal_in_block=slidin"], "causal_in_block"),
        (["--model.blok_size=8"], "blok_size"),
        (["--data.plan.edgse=[1]"], "edgse"),
        (["--trainer.callbacks+=GradNrom"], "GradNrom"),
        (["--model.objective=CrossEntropi"], "CrossEntropi"),
    ],
)
def test_an_unknown_key_is_an_error_that_names_it(words, message, capsys):
    with pytest.raises(SystemExit):
        parse("tiny", extra=words)
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model.lr=0"], "model.lr must be a positive number, got 0"),
        (
            ["--data.plan.edges=[64,8192]"],
            "plan.max_tokens 4096 cannot hold one sample of the last edge 8192",
        ),
        (["--model.warmup_fraction=2"], "model.warmup_fraction is a share of the run"),
        (["--model.max_skipped_steps=0"], "model.max_skipped_steps must be at least 1, got 0"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_by_name(words, message, capsys):
    with pytest.raises((SystemExit, ValueError)) as refusal:
        parse("tiny", extra=words)
    assert message in str(refusal.value) + capsys.readouterr().err


def test_last_without_a_checkpoint_is_an_error(tmp_path):
    from dflash_lightning.lightning_cli import run_cli

    words = ["fit", "--config", str(CONFIGS / "tiny.yaml"), "--config", str(CONFIGS / "callbacks/none.yaml")]
    with pytest.raises(FileNotFoundError, match="--ckpt_path last: no checkpoint below"):
        run_cli([*words, f"--trainer.default_root_dir={tmp_path}", "--ckpt_path=last"])


def test_the_cli_offers_only_what_it_can_do():
    assert set(DFlashCLI.subcommands()) == {"fit", "validate", "test"}
