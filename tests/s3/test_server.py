"""The S3 server starts on every machine: its ports never get in each other's way, nor in that of others."""

import socket

import pytest

from tests import ports
from tests.s3 import server
from tests.s3.server import Weed


def test_ports_and_those_of_grpc_beside_them_are_all_different():
    for _ in range(50):
        drawn = ports.free_ports(10)
        both = [*drawn, *(port + ports.GRPC for port in drawn)]
        assert len(set(both)) == 20
        assert max(both) < 32_768


def test_processes_side_by_side_draw_from_disjoint_sets(monkeypatch):
    drawn = []
    for worker in ("gw0", "gw1", "gw7"):
        monkeypatch.setenv("PYTEST_XDIST_WORKER", worker)
        drawn.append(set(ports.free_ports(200)))
    assert len(set.union(*drawn)) == 600


@pytest.mark.parametrize("beside", [0, ports.GRPC])
def test_a_port_in_use_is_not_drawn(monkeypatch, beside):
    wanted = ports.free_port()
    monkeypatch.setattr(ports, "_share", lambda: wanted - ports.FIRST)
    monkeypatch.setattr(ports, "END", wanted + 1)
    assert ports.free_port() == wanted
    with socket.socket() as other:
        other.bind(("127.0.0.1", wanted + beside))
        other.listen()
        with pytest.raises(RuntimeError, match="^1 free ports wanted between .*, found 0$"):
            ports.free_port()


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 2, 9])  # of S3, the master, the administrator
def test_a_port_that_is_taken_before_the_start_is_another_one(tmp_path, number):
    weed = Weed(tmp_path)
    taken = weed._ports[number]
    with socket.socket() as other:
        other.bind(("127.0.0.1", taken))
        other.listen()
        try:
            weed.start()
            assert taken not in weed._ports
            weed.restart()  # its address stays
            assert weed.client().list_objects_v2(Bucket=weed.bucket)["KeyCount"] == 2
        finally:
            weed.kill()


@pytest.mark.slow
def test_a_port_that_the_server_wants_for_grpc_is_another_draw(tmp_path, monkeypatch):
    """What it refuses with "reserved for gRPC calculation"."""
    real, drawn = ports.free_ports(10), ports.free_ports(10)
    drawn[2] = drawn[9] + ports.GRPC  # the master on what the administrator takes for gRPC
    draws = iter([drawn, real])
    monkeypatch.setattr(server, "free_ports", lambda number: next(draws))
    weed = Weed(tmp_path)
    try:
        weed.start()
        assert weed._ports == real
    finally:
        weed.kill()
