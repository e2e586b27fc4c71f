"""The folder in which components are composed."""

from pathlib import Path

import pytest

from tests.commands.authoring.composing import fill


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with components of every plain kind."""
    made = tmp_path / "work"
    made.mkdir()
    fill(made)
    return made
