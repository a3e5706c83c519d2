"""Going on from what S3Checkpoint has saved, by address."""

import pytest
import torch

from dflash_lightning.callbacks.s3_checkpoint import S3Checkpoint
from dflash_lightning.checkpoint.listing import list_manifests
from dflash_lightning.checkpoint.resuming.resume import NothingFound
from dflash_lightning.checkpoint.stores.errors import StoreError
from dflash_lightning.checkpoint.stores.open import open_store
from tests.callbacks.saving_runs import PATIENCE, STOP, At, Fail, fail, fit, in_thread, manifests_in, steps_in
from tests.callbacks.saving_runs import store as store
from tests.callbacks.saving_runs import whole as whole
from tests.slow import slow


@pytest.mark.parametrize("process", [pytest.param(False, marks=pytest.mark.slow), True])
def test_stopped_and_resumed_by_address_equals_never_stopped(process, tmp_path, toy_target, store, whole):
    folder = tmp_path / "kept"
    with pytest.raises(Fail):
        fit(
            tmp_path / "a",
            toy_target,
            store,
            S3Checkpoint(str(folder), every_n_steps=3, process=process, deadline_s=PATIENCE),
            At(STOP, fail),
        )
    assert steps_in(folder)[-1] == (STOP, "exception")
    callback = S3Checkpoint(str(folder), every_n_steps=3, process=process)
    rest = fit(tmp_path / "b", toy_target, store, callback, resume=str(folder))
    assert rest.steps == whole.steps[STOP:]
    assert rest.batches == whole.batches[2 * STOP :]
    assert len({m.run_id for m in manifests_in(folder)}) == 1  # under the same prefix it is the same run


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`")  # callbacks that are not there now
def test_an_address_with_a_step_and_a_file_for_stock_lightning(tmp_path, toy_target, store, whole):
    folder = tmp_path / "kept"
    fit(tmp_path / "a", toy_target, store, in_thread(folder, keep_last=-1))
    by_step = fit(tmp_path / "b", toy_target, store, in_thread(tmp_path / "other"), resume=f"{folder}/step=4")
    (file,) = (folder / "data").glob("step=4-*.ckpt")
    assert torch.load(file, weights_only=True)["DFlashDataModule"]["position"]["steps"] == 4
    by_file = fit(tmp_path / "c", toy_target, store, resume=str(file))
    assert by_step.steps == by_file.steps == whole.steps[4:]
    runs = {m.run_id for where in ("kept", "other") for m in manifests_in(tmp_path / where)}
    assert len(runs) == 2  # under another prefix it is another run


def test_an_address_without_a_checkpoint_is_an_error(tmp_path, toy_target, store):
    with pytest.raises(NothingFound, match="there is no checkpoint"):
        fit(tmp_path, toy_target, store, in_thread(tmp_path / "kept"), resume=str(tmp_path / "nothing"))


def test_one_command_line_for_the_first_start_and_every_restart(tmp_path, toy_target, store, whole, caplog):
    folder = tmp_path / "kept"
    command = {"resume": f"{folder}/last"}
    callback = in_thread(folder, every_n_steps=3, if_missing="fresh")
    with pytest.raises(Fail):
        fit(tmp_path / "a", toy_target, store, callback, At(STOP, fail), **command)
    assert f"starting fresh: there is no checkpoint {folder}/last: nothing lies there" in caplog.text
    caplog.clear()
    rest = fit(tmp_path / "b", toy_target, store, in_thread(folder, if_missing="fresh"), **command)
    assert rest.steps == whole.steps[STOP:]
    assert "starting fresh" not in caplog.text


@pytest.mark.parametrize("address", ["kept/best", "kept/step=4", "other", "other/last"])
def test_only_the_newest_of_the_own_store_may_be_missing(address, tmp_path, toy_target, store):
    callback = in_thread(tmp_path / "kept", if_missing="fresh")
    with pytest.raises(NothingFound, match="there is no checkpoint"):
        fit(tmp_path, toy_target, store, callback, resume=f"{tmp_path}/{address}")


def test_a_checkpoint_that_is_broken_is_not_missing(tmp_path, toy_target, store):
    (tmp_path / "kept" / "manifests").mkdir(parents=True)
    (tmp_path / "kept" / "manifests" / "step=000000000004-1a2b3c4d.json").write_text("{")
    callback = in_thread(tmp_path / "kept", if_missing="fresh")
    with pytest.raises(StoreError, match="no checkpoint at .* can be used: .*or was cut"):
        fit(tmp_path, toy_target, store, callback, resume=str(tmp_path / "kept"))


@pytest.mark.slow
def test_no_download_stays(tmp_path, toy_target, store, monkeypatch):
    folder, cache = tmp_path / "kept", tmp_path / "tmp"
    cache.mkdir()
    fit(tmp_path / "a", toy_target, store, in_thread(folder))
    monkeypatch.setattr("tempfile.tempdir", str(cache))
    fit(tmp_path / "b", toy_target, store, in_thread(folder), resume=f"{folder}/last", max_epochs=2)
    assert [*cache.glob("dflash-checkpoint-*")] == []


@pytest.mark.slow
def test_a_real_s3_server(tmp_path, toy_target, store, whole, s3_settings, s3_uri):
    """Saved by a process of its own, resumed by address."""

    def to_s3(**options):
        return S3Checkpoint(s3_uri, s3_settings, **{"every_n_steps": 2, "deadline_s": PATIENCE, **options})

    with pytest.raises(Fail):
        fit(tmp_path / "a", toy_target, store, to_s3(), At(STOP, fail))
    rest = fit(tmp_path / "b", toy_target, store, to_s3(), resume=f"{s3_uri}/last")
    assert rest.steps == whole.steps[STOP:]
    manifests = list_manifests(*open_store(s3_uri, s3_settings)).manifests
    assert [m.step for m in manifests] == [len(whole.steps), len(whole.steps) - 2][: len(manifests)]
    assert {m.run_id for m in manifests} == {manifests[0].run_id}


def warned(caplog):
    return [record.getMessage() for record in caplog.records if "already holds" in record.getMessage()]


def test_a_fresh_run_in_the_place_of_another_says_so_once(tmp_path, toy_target, store, caplog):
    folder = tmp_path / "kept"
    fit(tmp_path / "a", toy_target, store, in_thread(folder), max_steps=4)
    assert warned(caplog) == []
    old = manifests_in(folder)[-1].run_id
    fit(tmp_path / "b", toy_target, store, in_thread(folder), max_steps=2)
    (said,) = warned(caplog)
    new = manifests_in(folder)[-1].run_id
    assert said.startswith(f"{folder} already holds checkpoints of run {old}, the newest of step 4: ")
    assert f"this new run, {new}, is what last and best mean there; to go on with the old one" in said
    assert said.endswith("start with --ckpt_path last")


@pytest.mark.parametrize("spelling", ["{}/", *slow("{}", "file://{}", "{}/../kept")])
def test_a_run_that_goes_on_is_the_same_however_its_folder_is_spelled(
    spelling, tmp_path, toy_target, store, caplog
):
    folder = tmp_path / "kept"
    fit(tmp_path / "a", toy_target, store, in_thread(folder), max_steps=2)
    again = in_thread(spelling.format(folder))
    fit(tmp_path / "b", toy_target, store, again, resume=f"{folder}/last", max_steps=4)
    assert len({m.run_id for m in manifests_in(folder)}) == 1
    assert warned(caplog) == []
