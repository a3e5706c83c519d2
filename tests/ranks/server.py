"""What torchrun starts: each rank runs the jobs it is asked for, so that many tests pay for imports once.

in    folder/<n>.job, a pickled (name of a function, arguments, timeout)
out   folder/<n>.<rank>.result, a pickled (result, error)
"""

import faulthandler
import importlib
import os
import pickle
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any


def resolve(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


def answer(job: Path, rank: str) -> None:
    name, arguments, timeout = pickle.loads(job.read_bytes())
    faulthandler.dump_traceback_later(0.8 * timeout)  # says where a rank hangs, in the output of the pool
    try:
        reply = (resolve(name)(**arguments), None)
    except (Exception, SystemExit) as error:
        reply = (None, f"{type(error).__name__}: {error}\n{traceback.format_exc()}")
    faulthandler.cancel_dump_traceback_later()
    part = job.with_suffix(f".{rank}.part")
    part.write_bytes(pickle.dumps(reply))
    part.rename(job.with_suffix(f".{rank}.result"))


def main() -> None:
    warnings.filterwarnings("ignore")  # the same code runs in the pytest process, where warnings are errors
    folder, rank, agent = Path(sys.argv[1]), os.environ["RANK"], os.getppid()
    number = 0
    while os.getppid() == agent:
        job = folder / f"{number}.job"
        if not job.exists():
            time.sleep(0.02)
            continue
        answer(job, rank)
        number += 1


if __name__ == "__main__":
    main()
