"""Fragments laid over a config: what they add, what they replace, as `fit` would see it."""

from functools import cache
from pathlib import Path

import pytest

from dflash_lightning.lightning_cli import read_config
from tests.slow import slow

CONFIGS = Path(__file__).parents[1] / "configs"
FRAGMENTS = sorted(path.stem for path in (CONFIGS / "callbacks").glob("*.yaml"))
WATCHERS = {"GradNorm", "BucketMix", "LossBands", "GradDirection", "StepGuard", "Throughput", "Acceptance"}


@cache  # parsing is slow
def callbacks(*names):
    """Short names of the callbacks in stacked configs, in order."""
    words = [f"--config={CONFIGS / name}.yaml" for name in names]
    entries = read_config(words)["trainer"]["callbacks"]
    return [entry["class_path"].rsplit(".", 1)[-1] for entry in entries]


@pytest.fixture(scope="module")
def before():
    return callbacks("tiny")


@pytest.mark.parametrize("name", [FRAGMENTS[0], *slow(*FRAGMENTS[1:])])
def test_each_fragment_adds_behind_what_is_there_or_replaces_it(name, before):
    text = (CONFIGS / "callbacks" / f"{name}.yaml").read_text()
    after = callbacks("tiny", f"callbacks/{name}")
    if "callbacks+:" in text:
        assert after[: len(before)] == before
        assert len(after) > len(before)
    else:
        assert after == []
    # Lightning refuses two of a kind; ModelCheckpoint alone may come twice, for two files.
    once = [kind for kind in after if kind != "ModelCheckpoint"]
    assert len(once) == len(set(once))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["demo", "qwen3_8b", "llama3_8b"])
def test_the_configs_leave_no_watcher_out(name):
    assert set(callbacks(name)) >= WATCHERS


def test_fragments_stack_in_the_order_they_are_given(tmp_path, before):
    both = callbacks("tiny", "callbacks/direction", "callbacks/micro_batches")
    assert both == [*before, "GradDirection", "MicroBatches"]
    assert callbacks("tiny", "callbacks/none", "callbacks/micro_batches") == ["MicroBatches"]


@pytest.mark.slow
def test_a_callback_of_your_own_is_named_by_its_path(tmp_path, before):
    fragment = tmp_path / "mine.yaml"
    fragment.write_text("trainer:\n  callbacks+:\n    - class_path: tests.ranks.jobs.Recorder\n")
    entries = read_config([f"--config={CONFIGS / 'tiny.yaml'}", f"--config={fragment}"])["trainer"][
        "callbacks"
    ]
    assert entries[-1]["class_path"] == "tests.ranks.jobs.Recorder"
    assert len(entries) == len(before) + 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["wandb_offline", "tensorboard"])
def test_a_loggers_fragment_writes_into_the_runs_own_folder(name):
    words = [f"--config={CONFIGS / 'tiny.yaml'}", f"--config={CONFIGS / 'loggers' / name}.yaml"]
    trainer = read_config([*words, "--trainer.default_root_dir=runs/mine"])["trainer"]
    loggers = trainer["logger"] if isinstance(trainer["logger"], list) else [trainer["logger"]]
    assert {logger["init_args"]["save_dir"] for logger in loggers} == {"runs/mine"}
