"""Real decoding at validations: the values are those of decoding each prompt by itself."""

import json
import shutil
from pathlib import Path

import pytest
from lightning import Callback

from dflash_lightning.callbacks.held_out_decoding import HeldOutDecoding
from dflash_lightning.callbacks.s3_checkpoint import S3Checkpoint
from dflash_lightning.data.store import TokenStore
from dflash_lightning.decoding.acceptance import acceptance_length
from dflash_lightning.decoding.chain import decode_chain
from dflash_lightning.decoding.lookup import lookup_rounds
from dflash_lightning.training.checkpoints.checkpoint_state import metrics_of
from dflash_lightning.training.watch.held_out_decoding import Decoding, decoded_values, held_out_prompts
from tests.ranks import jobs
from tests.runs import make_store_of, toy_data, toy_module, toy_trainer
from tests.slow import slow

NEW = 12
NAMES = {"val/decode_tau", "val/decode_tau_mean", "val/decode_tau_first32", "val/lookup_tau"}


class Alone(Callback):
    """Decodes each prompt by itself, at the same weights."""

    def __init__(self, prompts, stop_ids=(1,)):
        self.prompts, self.stop_ids = prompts, set(stop_ids)
        self.expected = []

    def on_validation_epoch_end(self, trainer, pl_module):
        answers = [
            decode_chain(
                pl_module.target, pl_module.drafter, prompt, max_new_tokens=NEW, stop_ids=self.stop_ids
            )
            for prompt in self.prompts
        ]
        texts = zip(self.prompts, answers, strict=True)
        self.expected.append(
            decoded_values(
                "val",
                [answer.rounds for answer in answers],
                [lookup_rounds(prompt, answer.token_ids, block_size=4) for prompt, answer in texts],
            )
        )


@pytest.mark.parametrize("at_once", [3, *slow(1)])
def test_values_are_those_of_each_prompt_alone(at_once, tmp_path, toy_target, observed_store):
    alone = Alone(held_out_prompts(TokenStore.open(observed_store), 4))
    ours = HeldOutDecoding(decoding=Decoding(prompts=4, max_new_tokens=NEW, at_once=at_once))
    trainer = toy_trainer(tmp_path, callbacks=[ours, alone])
    trainer.fit(toy_module(toy_target), toy_data(Path(observed_store)))
    rows = [row for row in jobs.read_rows(Path(trainer.log_dir)) if "val/tau" in row]
    assert len(rows) == len(alone.expected) == 2
    for row, expected in zip(rows, alone.expected, strict=True):
        assert {name: float(row[name]) for name in NAMES} == pytest.approx(expected, rel=1e-5)
        assert 1 <= expected["val/decode_tau"] <= 4


def test_an_answer_ends_where_those_of_the_store_do(tmp_path, toy_target, observed_store):
    """`prepare --stop-token` told the store what the target's own config does not."""
    store = tmp_path / "store"
    shutil.copytree(observed_store, store)
    manifest = json.loads((store / "manifest.json").read_text())
    (store / "manifest.json").write_text(json.dumps({**manifest, "stop_ids": list(range(2, 20))}))
    prompts = held_out_prompts(TokenStore.open(store), 4)
    alone, longer = Alone(prompts, range(1, 20)), Alone(prompts)
    ours = HeldOutDecoding(decoding=Decoding(prompts=4, max_new_tokens=NEW))
    trainer = toy_trainer(tmp_path, callbacks=[ours, alone, longer], max_epochs=1)
    trainer.fit(toy_module(toy_target), toy_data(store))
    (row,) = [row for row in jobs.read_rows(Path(trainer.log_dir)) if "val/tau" in row]
    assert {name: float(row[name]) for name in NAMES} == pytest.approx(alone.expected[0], rel=1e-5)
    assert alone.expected != longer.expected


@pytest.mark.parametrize("longest", [3, 5, 9, None])
def test_prompts_leave_room_for_the_answer(longest, observed_store):
    store = TokenStore.open(observed_store)
    whole = [len(prompt) for prompt in held_out_prompts(store, 10)]
    found = [len(prompt) for prompt in held_out_prompts(store, 10, longest=longest)]
    assert found == [length for length in whole if longest is None or length <= longest]
    assert len(set(whole)) > 2


def test_no_room_for_any_answer_is_said_and_nothing_decoded(tmp_path, toy_target, observed_store):
    """The toy target has 512 positions; behind them its text is noise."""
    ours = HeldOutDecoding(decoding=Decoding(prompts=10, max_new_tokens=513))
    trainer = toy_trainer(tmp_path, callbacks=[ours])
    with pytest.warns(UserWarning, match=r"no validation row .* decoding.max_new_tokens 513 in the 512"):
        trainer.validate(toy_module(toy_target), toy_data(Path(observed_store)), verbose=False)
    assert "val/tau" in trainer.callback_metrics
    assert "val/decode_tau" not in trainer.callback_metrics


class Kept(Callback):
    """What a checkpoint after each validation would say of its weights."""

    def __init__(self):
        self.names = []

    def on_validation_end(self, trainer, pl_module):
        self.names.append({name for name in metrics_of(trainer, pl_module) if name.startswith("val/")})


@pytest.mark.parametrize(("every", "decoded"), [(1, [True, True, True]), (2, [True, False, True])])
def test_not_every_validation_needs_it(every, decoded, tmp_path, toy_target, observed_store):
    """And a value that was not measured again is none of the weights of now."""
    kept = Kept()
    ours = HeldOutDecoding(every, Decoding(prompts=2, max_new_tokens=4))
    trainer = toy_trainer(tmp_path, callbacks=[ours, kept], max_epochs=3)
    trainer.fit(toy_module(toy_target), toy_data(Path(observed_store)))
    rows = [row for row in jobs.read_rows(Path(trainer.log_dir)) if "val/tau" in row]
    assert ["val/decode_tau" in row for row in rows] == decoded
    assert [names >= NAMES for names in kept.names] == decoded
    assert [bool(names & NAMES) for names in kept.names] == decoded
    assert all("val/tau" in names for names in kept.names)


def test_the_best_by_a_value_of_every_other_validation(tmp_path, toy_target, observed_store):
    saves = S3Checkpoint(str(tmp_path / "kept"), monitor="val/decode_tau", keep_best=9, process=False)
    ours = HeldOutDecoding(2, Decoding(prompts=2, max_new_tokens=4))
    trainer = toy_trainer(tmp_path, callbacks=[ours, saves], max_epochs=3, enable_checkpointing=True)
    trainer.fit(toy_module(toy_target), toy_data(Path(observed_store)))
    kept = [json.loads(path.read_text()) for path in (tmp_path / "kept/manifests").iterdir()]
    best = {manifest["step"]: manifest["metrics"] for manifest in kept if manifest["kind"] == "best"}
    assert best.keys() == {6, 18}
    assert all("val/decode_tau" in metrics for metrics in best.values())


def test_prompts_end_where_the_target_began(tmp_path, toy_target):
    held_out = [(9, range(4, 9)), (7, range(7)), (8, range(5, 8))]
    store = make_store_of(tmp_path, toy_target, [(9, range(3, 9))] * 3, held_out=held_out)
    opened = TokenStore.open(store)
    lengths = [len(prompt) for prompt in held_out_prompts(opened, 10)]
    assert sorted(lengths) == [4, 5]  # of the third the target wrote everything: nothing to continue
    ids, _ = opened.row("validation", 0)
    assert held_out_prompts(opened, 1)[0] == ids[: lengths[0]].tolist()


def test_stored_states_leave_no_target_to_decode_with(tmp_path, toy_target, observed_store):
    trainer = toy_trainer(tmp_path, callbacks=[HeldOutDecoding()])
    module = toy_module(toy_target, hidden_states="anywhere")
    with pytest.raises(ValueError, match=r"HeldOutDecoding needs the whole target.*use `evaluate`"):
        trainer.fit(module, toy_data(Path(observed_store)))


@pytest.mark.parametrize("name", ["prompts", "max_new_tokens", "at_once"])
def test_nonsense_is_refused(name):
    with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
        Decoding(**{name: 0})


def test_no_round_gives_no_number():
    assert acceptance_length([]).rounds == 0
    assert all(value != value for value in decoded_values("val", [], []).values())
