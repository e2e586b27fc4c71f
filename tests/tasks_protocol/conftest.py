"""The ways to servers with tasks, started once for all tests.

All tests that use them are in one `xdist_group`, so that only one worker starts them.
"""

from collections.abc import Iterator

import pytest

from tests.tasks_protocol.doors import WAYS, Doors
from tests.tasks_protocol.follower import Follower


@pytest.fixture(scope="session")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    """All ways."""
    with Doors(tmp_path_factory.mktemp("doors")) as ready:
        yield ready


@pytest.fixture(params=[pytest.param(way, marks=pytest.mark.soak) for way in WAYS], ids="-".join)
def client(request: pytest.FixtureRequest, doors: Doors) -> Iterator[Follower]:
    """A client of each way; whatever it receives is valid by its schema."""
    client = doors.client(*request.param)
    yield client
    assert client.oracle.problems == []
