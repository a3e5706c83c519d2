import pytest

from tests.ranks.pool import Ranks


@pytest.fixture(scope="session")
def two_ranks(tmp_path_factory):
    ranks = Ranks(2, tmp_path_factory.mktemp("ranks") / "two")
    yield ranks
    ranks.close()


@pytest.fixture(scope="session")
def three_ranks(tmp_path_factory):
    ranks = Ranks(3, tmp_path_factory.mktemp("ranks") / "three")
    yield ranks
    ranks.close()
