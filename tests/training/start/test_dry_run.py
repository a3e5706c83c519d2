"""How a dry run is told, and that it leaves nothing behind."""

import socket

import pytest
import torch
import yaml
from lightning import Callback

from dflash_lightning.lightning_cli import run_cli
from dflash_lightning.target.device_map import target_devices
from dflash_lightning.target.dispatch import PrefetchPolicy
from dflash_lightning.training.start.dry_run import Seat, Step, seat_lines, seat_of, step_lines, targets
from tests.ranks.runs import toy_config
from tests.runs import make_store, toy_data, toy_module, toy_trainer
from tests.training.prefetch.test_stored_states import write


def step(**values):
    shape = {"bucket": 1, "rows": 4, "padded_length": 32, "blocks": 20, "seconds": 0.5, "gib": 1.0}
    return Step(**(shape | values))


def test_each_rank_has_a_line():
    seats = [Seat(node="a", drafter="cuda:0", states="A"), Seat(node="b", drafter="cuda:1", states="B")]
    assert seat_lines(seats) == ["  rank 0   a: drafter on cuda:0, A", "  rank 1   b: drafter on cuda:1, B"]


class Seated(Callback):
    """Keeps where a real run sits."""

    def on_fit_start(self, trainer, pl_module):
        self.seat = seat_of(trainer, pl_module)


@pytest.fixture(scope="module")
def store(tmp_path_factory, toy_target):
    return make_store(tmp_path_factory.mktemp("store"), toy_target, [10] * 8)


@pytest.mark.parametrize(
    ("devices", "depth", "states"),
    [
        (0, 0, "target on the same device"),
        pytest.param(0, 2, "target on the same device", marks=pytest.mark.slow),  # ahead, beside the drafter
        (1, 0, "target on cpu"),  # inline, on a device of its own
        pytest.param(1, 2, "target on cpu", marks=pytest.mark.slow),
        (3, 2, "target on cpu, cpu, cpu"),
    ],
)
def test_a_seat_names_the_devices_whatever_runs_ahead(devices, depth, states, tmp_path, toy_target, store):
    module = toy_module(toy_target, target_devices=devices, prefetch=PrefetchPolicy(depth=depth))
    seated = Seated()
    toy_trainer(tmp_path, callbacks=[seated], max_steps=1).fit(module, toy_data(store))
    assert seated.seat == Seat(node=socket.gethostname(), drafter="cpu", states=states)


def test_a_seat_names_the_folder_of_stored_states(tmp_path, toy_target, store):
    folder, seated = write(tmp_path / "states", toy_target, store), Seated()
    module = toy_module(toy_target, hidden_states=folder)
    toy_trainer(tmp_path / "run", callbacks=[seated], max_steps=1).fit(module, toy_data(store))
    assert seated.seat.states == f"hidden states from {folder}"


def test_targets_on_gpus_are_those_of_the_device_map():
    devices = target_devices(torch.device("cuda", 1), local_rank=1, local_world=2, count=3)
    assert targets(devices, own=True) == "cuda:5, cuda:6, cuda:7"


@pytest.mark.parametrize(("limit", "shown"), [(None, "3.50"), (80.0, "3.50 of 80.0")])
def test_of_all_ranks_the_slowest_and_the_fullest_count(limit, shown):
    ranks = [[step(seconds=0.5, gib=3.5)], [step(seconds=2.0, gib=1.0)]]
    head, line = step_lines(ranks, limit)
    assert head.split() == ["bucket", "rows", "x", "length", "blocks", "seconds", "peak", "memory,", "GiB"]
    assert line.split() == ["1", "4", "x", "32", "20", "2.00", *shown.split()]


def test_a_dry_run_makes_one_step_a_bucket_and_writes_nothing(tmp_path, toy_target, caplog):
    store = make_store(tmp_path, toy_target, [10] * 8 + [18] * 8 + [30] * 8, held_out=[10, 30])
    values = toy_config(tmp_path / "run", toy_target, store, delay=0.0)
    kept = {"class_path": "S3Checkpoint", "init_args": {"uri": str(tmp_path / "kept")}}
    values["trainer"]["callbacks"] = [*values["trainer"]["callbacks"][:3], kept]
    config = tmp_path / "toy.yaml"
    config.write_text(yaml.safe_dump(values))
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    run_cli(["fit", f"--config={config}", "--dry_run=true"])
    told = "\n".join(record.getMessage() for record in caplog.records)
    assert "rank 0" in told
    assert told.count("memory of a rank, estimated") == 1
    assert told.index("memory of a rank, estimated") < told.index("rank 0")
    assert f"checkpoints can be kept at {tmp_path / 'kept'}" in told
    rows = [line.split()[:4] for line in told.splitlines() if " x " in line and line.split()[0].isdigit()]
    assert [row[0] for row in rows] == ["0", "1", "2"]
    assert [row[3] for row in rows] == ["10", "18", "30"]
    assert "dry run passed; nothing was written" in told
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_store_that_cannot_be_written_ends_it(tmp_path, toy_target):
    store = make_store(tmp_path, toy_target, [10] * 8)
    values = toy_config(tmp_path / "run", toy_target, store, delay=0.0)
    (tmp_path / "kept").write_text("a file, no folder")
    kept = {"class_path": "S3Checkpoint", "init_args": {"uri": str(tmp_path / "kept")}}
    values["trainer"]["callbacks"] = [kept]
    config = tmp_path / "toy.yaml"
    config.write_text(yaml.safe_dump(values))
    with pytest.raises(Exception, match="checkpoints cannot be kept at"):
        run_cli(["fit", f"--config={config}", "--dry_run=true"])
