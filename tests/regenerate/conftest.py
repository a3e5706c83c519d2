import pytest

from tests.regenerate.servers import RunningServer


@pytest.fixture(scope="session")
def chat_server():
    """A real second process; its faults stand in the questions, so tests can share it."""
    with RunningServer() as server:
        yield server
