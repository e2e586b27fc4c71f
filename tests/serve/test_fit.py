"""Windows of several clients at one gateway: each gets the list that suits it."""

from pathlib import Path
from typing import Any

import pytest

from tests.rigs.running import shelf
from tests.serve.gateway import Pipes, command, written

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("serve-clients")]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    books = tmp_path / "books"
    books.write_text(" ".join(f"book-{number}" for number in range(60)))
    return written(tmp_path / "portico.toml", {"mine": command(shelf(books))})


def hello(window: Pipes, info: Any) -> None:
    asked: dict[str, Any] = {"protocolVersion": "2025-11-25", "capabilities": {}}
    if info is not None:
        asked["clientInfo"] = info
    assert "result" in window.ask("initialize", asked)


def is_searching(home: Path, config: Path, info: Any, *options: str) -> bool:
    with Pipes(home, config, *options) as window:
        hello(window, info)
        return "search_tools" in window.tools()


def test_two_clients_at_one_gateway_each_get_their_own_list(config: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    with Pipes(home, config) as first, Pipes(home, config) as second:
        hello(first, {"name": "claude-code", "version": "2.1.326"})
        hello(second, {"name": "gemini-cli-mcp-client", "version": "0.61.0"})
        assert first.owner == second.owner != 0
        assert len([name for name in first.tools() if name.startswith("mine__")]) == 60
        assert "search_tools" in second.tools()
        assert "search_tools" not in first.tools()
        assert first.said("mine__book-7") == "book-7"


def test_a_version_a_setting_or_an_option_overrides_the_name(config: Path, tmp_path: Path) -> None:
    home, new = tmp_path / "home", {"name": "claude-code", "version": "2.1.326"}
    with Pipes(home, config) as first:
        hello(first, new)
        assert is_searching(home, config, {"name": "claude-code", "version": "2.1.6"})
        assert is_searching(home, config, new, "--expose", "search")
        assert is_searching(home, config, new, "--client", "gemini")
        assert not is_searching(home, config, {"name": "x", "version": "1"}, "--client", "codex")


@pytest.mark.parametrize(
    "info", [None, "claude-code", {"name": 7}, {"name": "Claude-Code"}, {"name": "x" * 9000}]
)
def test_a_client_without_a_known_name_is_unknown(info: Any, config: Path, tmp_path: Path) -> None:
    with Pipes(tmp_path / "home", config) as window:
        asked = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
        answer = window.ask("initialize", {k: v for k, v in asked.items() if v is not None})
        if "result" in answer:
            assert "search_tools" in window.tools()
        else:
            assert answer["error"]["code"] == -32602
