"""Ports of this machine for servers and ranks that tests start.

law   below 32768, where the local ports of connections begin: no connection of another test has one
law   p and p + 10000 are both free and no two of one call meet: SeaweedFS takes the second for gRPC
law   processes that test side by side draw from disjoint sets
"""

import itertools
import os
import random
import socket

GRPC = 10_000
FIRST, END = 11_000, 21_000
"""END - FIRST <= GRPC: no p + GRPC is another p."""
SHARES = 8


def free_port() -> int:
    return free_ports(1)[0]


def free_ports(number: int) -> list[int]:
    """`number` different ports on which nothing listens now."""
    mine = range(FIRST + _share(), END, SHARES)
    shuffled = random.SystemRandom().sample(mine, len(mine))
    found = list(itertools.islice(filter(_is_free, shuffled), number))
    if len(found) < number:
        raise RuntimeError(f"{number} free ports wanted between {FIRST} and {END}, found {len(found)}")
    return found


def _is_free(port: int) -> bool:
    try:
        for each in (port, port + GRPC):
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", each))
    except OSError:
        return False
    return True


def _share() -> int:
    """pytest-xdist calls its processes gw0, gw1, ...; a process that starts alone is the first."""
    name = os.environ.get("PYTEST_XDIST_WORKER", "gw0")
    return int(name.removeprefix("gw")) % SHARES
