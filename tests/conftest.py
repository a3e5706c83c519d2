import os

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")  # two threads beside another busy process run many times slower
os.environ.setdefault("JSONARGPARSE_DEPRECATION_WARNINGS", "off")  # Lightning 2.6 calls what 4.49 renamed
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

pytest_plugins = ["tests.s3.fixtures"]


@pytest.fixture(scope="session")
def toy_target(tmp_path_factory):
    """Folder of the toy target, with its tokenizer."""
    from tests.runs import save_toy_target

    return save_toy_target(tmp_path_factory.mktemp("target"))
