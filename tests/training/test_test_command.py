"""`test`: the figures of validation, on the rows of a store that no checkpoint was chosen by."""

import logging
from pathlib import Path

import pytest

from dflash_lightning.callbacks.acceptance import Acceptance
from dflash_lightning.callbacks.held_out_decoding import HeldOutDecoding
from dflash_lightning.training.watch.held_out_decoding import Decoding
from tests.runs import make_store, save_toy_target, toy_data, toy_module, toy_trainer

HELD_OUT, OTHERS = [10, 30, 20, 9], [25, 12, 44]
DECODING = Decoding(prompts=3, max_new_tokens=6)


@pytest.fixture(scope="module")
def stores(tmp_path_factory, toy_target):
    """For training, and for the test; the second holds a row longer than every training row."""
    root = tmp_path_factory.mktemp("stores")
    return (
        make_store(root / "training", toy_target, [30, 30], held_out=HELD_OUT),
        make_store(root / "test", toy_target, [8], held_out=OTHERS),
    )


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory, toy_target, stores):
    root = tmp_path_factory.mktemp("trained")
    trainer = toy_trainer(root, max_steps=12, max_epochs=-1, logger=False, limit_val_batches=0)
    trainer.fit(toy_module(toy_target, lr=1e-2), toy_data(stores[0]))
    trainer.save_checkpoint(root / "trained.ckpt")
    return root / "trained.ckpt"


def measure(what, tmp_path, target, checkpoint, **data):
    trainer = toy_trainer(tmp_path, callbacks=[HeldOutDecoding(decoding=DECODING), Acceptance()])
    run = trainer.validate if what == "val" else trainer.test
    (values,) = run(toy_module(target), toy_data(**data), ckpt_path=checkpoint, verbose=False)
    return values


def renamed(values, stage):
    return {name.replace("test/", f"{stage}/"): value for name, value in values.items()}


def test_it_measures_the_other_store_as_a_validation_would(tmp_path, toy_target, stores, checkpoint, caplog):
    training, others = stores
    caplog.set_level(logging.INFO, logger="lightning.pytorch.utilities.rank_zero")
    tested = measure("test", tmp_path, toy_target, checkpoint, store=training, test_store=str(others))
    assert "test at step 12: " in caplog.text
    assert all(name.startswith("test/") for name in tested)
    assert {"test/tau", "test/tree_tau_16", "test/decode_tau", "test/lookup_tau"} <= tested.keys()
    validated = measure("val", tmp_path, toy_target, checkpoint, store=others)
    assert renamed(tested, "val") == pytest.approx(validated, rel=1e-6)


def test_rows_that_the_checkpoint_was_chosen_by_are_no_test(tmp_path, toy_target, stores, checkpoint):
    with pytest.raises(ValueError, match=r"data.test_store is not set.* --validation-share 1.* `validate`"):
        measure("test", tmp_path, toy_target, checkpoint, store=stores[0])


def test_a_store_of_another_tokenizer_is_refused(tmp_path, toy_target, stores, checkpoint):
    other_target = save_toy_target(tmp_path / "target")
    words = other_target / "tokenizer.json"
    words.write_text(words.read_text().replace('"t9"', '"s9"'))
    strange = make_store(tmp_path / "strange", other_target, [8], held_out=[9])
    with pytest.raises(ValueError, match=r"other tokenizer: token store .*strange"):
        measure("test", tmp_path, toy_target, checkpoint, store=stores[0], test_store=str(strange))


@pytest.mark.parametrize(("store", "way_out"), [("empty", "holds no validation rows"), ("none", "no token")])
def test_nothing_to_measure_is_said(store, way_out, tmp_path, toy_target, stores, checkpoint):
    if store == "empty":
        make_store(tmp_path / "empty", toy_target, [8, 9])
    path = tmp_path / "empty" / "store" if store == "empty" else tmp_path / "none"
    with pytest.raises((ValueError, FileNotFoundError), match=way_out):
        measure("test", tmp_path, toy_target, checkpoint, store=stores[0], test_store=str(path))


def test_training_does_not_open_it(tmp_path, toy_target, stores):
    trainer = toy_trainer(tmp_path, max_steps=1, max_epochs=-1, logger=False)
    data = toy_data(Path(stores[0]), test_store=str(tmp_path / "comes later"))
    trainer.fit(toy_module(toy_target), data)
    assert data.held_out is data.store
