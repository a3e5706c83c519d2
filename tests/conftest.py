import os

import pytest

from tests.s3.fixtures import proxy as proxy
from tests.s3.fixtures import s3_env as s3_env
from tests.s3.fixtures import s3_settings as s3_settings
from tests.s3.fixtures import s3_uri as s3_uri
from tests.s3.fixtures import weed as weed

os.environ.setdefault("OMP_NUM_THREADS", "1")  # two threads beside another busy process run many times slower
os.environ.setdefault("JSONARGPARSE_DEPRECATION_WARNINGS", "off")  # Lightning 2.6 calls what 4.49 renamed
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def pytest_collection_modifyitems(items):
    """Tests marked gpu are skipped where there is none."""
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked:
        import torch

        if not torch.cuda.is_available():
            for item in marked:
                item.add_marker(pytest.mark.skip(reason="no CUDA device"))


@pytest.fixture(scope="session")
def toy_target(tmp_path_factory):
    """Folder of the toy target, with its tokenizer."""
    from tests.runs import save_toy_target

    return save_toy_target(tmp_path_factory.mktemp("target"))
