"""Test material kept beside the repository, such as schemas and corpora."""

import os
from pathlib import Path
from typing import NoReturn

import pytest

ROOT = Path(__file__).resolve().parents[2]


def shared(path: str) -> Path:
    """Return ../shared/PATH; a developer without it skips the test, CI fails it."""
    found = ROOT.parent / "shared" / path
    if not found.exists():
        unavailable(f"../shared/{path} is not there")
    return found


def unavailable(reason: str) -> NoReturn:
    """Skip the running test, or fail it on CI, where nothing may go missing unseen."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)
