"""A server that speaks both eras runs once, whichever era its clients are of."""

from pathlib import Path
from typing import Any

import pytest

from tests.rigs.running import tasks
from tests.serve.gateway import Gateway, command, written
from tests.wrap.faults import Wrap, command_line, descendants, until
from tests.wrap.talk import web

ASKABLE: dict[str, Any] = {"elicitation": {}, "roots": {}}


def processes(portico: Wrap) -> int:
    """How many servers run for it."""
    return sum("rigs/tasks.py" in command_line(pid) for pid in descendants(portico.process.pid))


@pytest.mark.parametrize("path", ["/mcp", "/servers/it/mcp"])
@pytest.mark.parametrize("first", ["legacy", "modern"])
def test_serve_runs_a_server_of_both_eras_once(tmp_path: Path, first: str, path: str) -> None:
    config = written(tmp_path / "portico.toml", {"it": command(tasks("both"))})
    tool = "pid" if path != "/mcp" else "it__pid"
    with (
        Gateway(tmp_path, config) as portico,
        web(portico.port, path=path) as plain,
        web(portico.port, path=path, modern=True) as modern,
    ):
        clients = [plain, modern]
        for client in clients if first == "legacy" else reversed(clients):
            assert client.call(tool) == plain.call(tool)
        assert processes(portico) == 1
        # Many such servers can ask in the legacy era only.
        with web(portico.port, ASKABLE, path=path) as legacy:
            assert legacy.call(tool) == plain.call(tool) != modern.call(tool)
            assert processes(portico) == 2


def test_a_warm_server_answers_its_first_modern_call_without_another_start(tmp_path: Path) -> None:
    config = written(tmp_path / "portico.toml", {"it": command(tasks("both"))})
    with Gateway(tmp_path, config) as portico, web(portico.port, modern=True) as modern:
        assert until(lambda: portico.status()["it"]["tools"] > 0)
        modern.call("it__pid")
        assert portico.status()["it"]["starts"] == 1


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_serve_still_runs_servers_of_one_era(tmp_path: Path, era: str) -> None:
    config = written(tmp_path / "portico.toml", {"it": command(tasks(era))})
    with (
        Gateway(tmp_path, config) as portico,
        web(portico.port) as plain,
        web(portico.port, modern=True) as modern,
        web(portico.port, ASKABLE) as legacy,
    ):
        assert plain.call("it__pid") == modern.call("it__pid")
        assert processes(portico) == 1
        # It never asked, so a client that can be asked shares it too.
        assert legacy.call("it__pid") == plain.call("it__pid")
        assert until(lambda: processes(portico) == 1)


@pytest.mark.parametrize("first", ["legacy", "modern"])
def test_wrap_runs_a_server_of_both_eras_once(tmp_path: Path, first: str) -> None:
    with (
        Wrap(tmp_path, "--", *tasks("both")) as portico,
        web(portico.port, modern=True) as modern,
    ):
        if first == "modern":
            modern.call("pid")
        with web(portico.port) as legacy:
            assert legacy.call("pid") == modern.call("pid")
        assert processes(portico) == 1
