"""Portico's own command line, as each client can start it."""

import os
from pathlib import Path

import pytest

from portico.commands.setup.own_entry import launcher, own_entries
from portico.core.config.client_table import CLIENTS

SHELL, APP = CLIENTS["codex"], CLIENTS["cursor"]


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An installed `portico` on the path of the shell."""
    path = tmp_path / "bin" / "portico"
    path.parent.mkdir()
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{path.parent}{os.pathsep}/usr/bin")
    return str(path)


def test_a_client_of_the_shell_finds_a_command_that_is_on_its_path(script: str) -> None:
    assert launcher(SHELL, "/elsewhere", script) == ["portico"]


def test_an_application_needs_the_whole_path(script: str) -> None:
    assert launcher(APP, "/elsewhere", script) == [script]


def test_the_path_of_an_environment_that_is_active_now_does_not_last(script: str) -> None:
    prefix = str(Path(script).parents[1])
    assert launcher(SHELL, prefix, script) == [script]


def test_a_command_that_is_not_on_the_path_is_whole(
    script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin")
    assert launcher(SHELL, "/elsewhere", script) == [script]


@pytest.mark.parametrize(
    "prefix",
    [
        "/home/ana/.cache/uv/archive-v0/h3x",
        "/home/ana/.cache/uv/environments-v2/portico-1",
        r"C:\Users\ana\AppData\Local\uv\cache\archive-v0\h3x",
    ],
)
def test_a_path_into_the_cache_of_uvx_is_never_written(prefix: str, script: str) -> None:
    assert launcher(SHELL, prefix, script) == ["uvx", "portico"]
    assert launcher(SHELL, "/home/ana/.local/share/uv/tools/portico", script) == ["portico"]


def test_each_server_may_have_an_entry_of_its_own() -> None:
    found = own_entries(CLIENTS["opencode"], ["portico"], ["a", "b"], "/x/portico.toml")
    assert list(found) == ["a", "b"]
    assert found["b"] == {
        "type": "local",
        "command": [
            *("portico", "serve", "--server", "b"),
            *("--config", "/x/portico.toml", "--client", "opencode"),
        ],
        "enabled": True,
    }
