"""Memory of this process, as the system counts it."""

import resource
import sys

GIB = 1 << 30


def peak_host_gib() -> float:
    """Largest resident memory so far, in GiB."""
    unit = 1 if sys.platform == "darwin" else 1024  # getrusage counts bytes there, KiB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / GIB
