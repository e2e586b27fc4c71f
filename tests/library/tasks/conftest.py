"""Task stores in memory and in a file, with clocks that tests set."""

from pathlib import Path

import pytest

from tests.support.task_stores import OpenStore, SetClocks, opener


@pytest.fixture
def now() -> SetClocks:
    return SetClocks()


@pytest.fixture(params=["memory", "file"])
def opened(request: pytest.FixtureRequest, tmp_path: Path, now: SetClocks) -> OpenStore:
    return opener(request.param, tmp_path / "state", now)
