"""The official suite's verdict on the everything server without a proxy."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.rigs.conformance import run_suite
from tests.rigs.running import everything, listening

Direct = Callable[[str], dict[str, str]]


@pytest.fixture(scope="session")
def direct(tmp_path_factory: pytest.TempPathFactory) -> Direct:
    """The status of every check of a set of requirements; the suite runs once for each set."""

    @cache
    def run(requirements: str) -> dict[str, str]:
        folder: Path = tmp_path_factory.mktemp("direct")
        with listening(everything("--http", "0", "--era", "both")) as url:
            return run_suite(url.replace("127.0.0.1", "localhost"), requirements, folder)

    return run
