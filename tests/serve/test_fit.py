"""Windows of several clients at one gateway: each gets the list that suits it."""

import json
import os
import signal
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from portico.commands.cli.main import main
from tests.fit.named_clients import CLAUDE, GEMINI, NamedClient, window
from tests.rigs.running import shelf
from tests.serve.gateway import Gateway, Pipes, command, refused, written
from tests.serve.owners import owner_in
from tests.wrap.faults import alive, command_line, descendants, until
from tests.wrap.talk import Web

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


ERAS = pytest.mark.parametrize("modern", [False, True], ids=["legacy", "modern"])
AGAINST = {"clients.claude": {"expose": "search"}, "clients.gemini": {"expose": "all"}}
"""Settings that would change what both clients are shown."""


def shelves(pid: int) -> list[int]:
    """The processes of the server below a gateway."""
    return [one for one in descendants(pid) if "shelf.py" in command_line(one)]


def servers_of(config: Path) -> dict[str, Any]:
    return {"mine": command(shelf(config.parent / "books"))}


@ERAS
def test_clients_over_stdio_and_http_at_one_gateway_each_keep_their_own_list(
    modern: bool, config: Path, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    with Gateway(home, config) as gateway, ExitStack() as stack:
        piped = [
            stack.enter_context(window(home, config, "--stdio", modern=modern)) for _ in range(2)
        ]
        posted = [stack.enter_context(Web(gateway.port, modern=modern)) for _ in range(2)]
        claudes = [NamedClient(one, CLAUDE) for one in (piped[0], posted[0])]
        others = [NamedClient(one, GEMINI) for one in (piped[1], posted[1])]

        def is_kept() -> bool:
            return not any(one.searches for one in claudes) and all(one.searches for one in others)

        assert is_kept()
        assert [len(one.tools()) for one in claudes] == [60, 60]
        for one in claudes:
            assert one.call("mine__book-7")["content"][0]["text"] == "book-7"
        for one in others:
            said = one.call("execute_tool", name="mine__book-8")["content"][0]["text"]
            assert said == "book-8"
        assert len(shelves(gateway.process.pid)) == 1
        claudes[1].call("refresh_tools")
        assert is_kept()
        (server,) = shelves(gateway.process.pid)
        os.kill(server, signal.SIGKILL)
        assert until(lambda: not alive({server}))
        again = {"name": "mine__book-9", "arguments": {}}
        # A call that arrives before the gateway has noticed the end fails with it.
        assert until(lambda: "result" in claudes[0].answer("tools/call", **again))
        assert is_kept()
        written(config, servers_of(config), gateway={"pinned": ["mine__book-3"]}, **AGAINST)
        # A pinned tool is listed beside the meta-tools: the new config is in use.
        assert until(lambda: "mine__book-3" in others[1].tools())
        assert is_kept()
        # A new session, or a new name, is decided by the new config.
        fresh = stack.enter_context(Web(gateway.port, modern=modern))
        new = NamedClient(fresh, CLAUDE)
        assert new.searches != modern
        assert (new.result("tools/list").get("cacheScope") == "private") == modern


@ERAS
def test_a_window_keeps_its_exposure_at_the_next_gateway(
    modern: bool, config: Path, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    with window(home, config, modern=modern) as one, window(home, config, modern=modern) as two:
        claude, gemini = NamedClient(one, CLAUDE), NamedClient(two, GEMINI)
        assert (claude.searches, gemini.searches) == (False, True)
        written(config, servers_of(config), **AGAINST)
        for _ in range(2):
            owner = owner_in(home / "state")
            os.kill(owner, signal.SIGKILL)
            assert until(lambda owner=owner: not alive({owner}))
            if modern:  # the name of the first message counts, not that of a later one
                claude.info, gemini.info = gemini.info, claude.info
            assert (claude.searches, gemini.searches) == (False, True)


def test_modern_http_clients_are_told_apart_by_name_and_unknown_without_one(
    config: Path, tmp_path: Path
) -> None:
    with Gateway(tmp_path / "home", config) as gateway, Web(gateway.port, modern=True) as web:
        client = NamedClient(web, CLAUDE)
        assert not client.searches
        client.info = {**CLAUDE, "version": "2.1.6"}  # the same pair, the same answer
        assert not client.searches
        for unknown in (GEMINI, {"name": "x", "version": "1"}, {"name": "y" * 3000, "version": ""}):
            client.info = unknown
            assert client.searches
        client.info = CLAUDE
        assert not client.searches
        nameless = json.loads(web.ask("tools/list"))["tools"]
        assert "search_tools" in [tool["name"] for tool in nameless]
        for odd in ("claude-code", 7, {"name": 7, "version": "1"}):
            client.info = odd
            answer = client.answer("tools/list")
            shown = answer.get("result", {}).get("tools")
            assert "error" in answer or "search_tools" in [tool["name"] for tool in shown]


def test_status_shows_what_each_client_is_shown_and_why(
    config: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("PORTICO_HOME", str(home))

    def status() -> str:
        assert main(["status", "--config", str(config)]) == 0
        return capsys.readouterr().out

    with Gateway(home, config) as gateway, ExitStack() as stack:
        piped = stack.enter_context(window(home, config, "--stdio", modern=False))
        assert until(lambda: "shown nothing yet: its client has sent no message yet" in status())
        NamedClient(piped, GEMINI)
        for modern in (False, True):
            client = NamedClient(stack.enter_context(Web(gateway.port, modern=modern)), CLAUDE)
            assert not client.searches
        told = status()
        claude = "clientInfo claude-code 2.1.326: it searches tools itself"
        assert f"claude-code 2.1.326 is shown all tools: {claude} (2 clients)" in told
        assert "gemini-cli-mcp-client 0.61.0 is shown the meta-tools: clientInfo" in told
        stack.enter_context(window(home, config, "--stdio", "--server", "mine", modern=False))
        assert until(lambda: "shown all tools: --server mine: only that server" in status())
        assert main(["status", "--config", str(config), "--json"]) == 0
        (found,) = json.loads(capsys.readouterr().out)
        assert len(found["exposures"]) == 4
        shown = {"expose": "all", "why": claude, "client": "claude-code 2.1.326"}
        assert found["exposures"].count(shown) == 2


def test_a_gateway_in_the_window_itself_shows_its_exposure_too(
    config: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("PORTICO_HOME", str(home))
    with window(home, config, "--alone", modern=False) as one:
        NamedClient(one, CLAUDE)
        assert main(["status", "--config", str(config)]) == 0
        assert "claude-code 2.1.326 is shown all tools" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("variables", "searches"),
    [
        ({"CLAUDECODE": "1"}, False),
        ({"OPENCODE": "1"}, True),
        ({"CLAUDECODE": "1", "OPENCODE": "1"}, True),
    ],
)
def test_the_environment_of_a_window_names_a_client_that_does_not(
    variables: dict[str, str],
    searches: bool,
    config: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    home = tmp_path / "home"
    with window(home, config, modern=False) as first:
        NamedClient(first, GEMINI)  # the gateway itself has another environment
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        with window(home, config, modern=False) as second:
            assert NamedClient(second, {"name": "x", "version": "1"}).searches == searches
        with window(home, config, modern=False) as third:
            assert NamedClient(third, GEMINI).searches


def test_an_unknown_exposure_is_rejected(config: Path, tmp_path: Path) -> None:
    written(config, servers_of(config), **{"clients.claude": {"expose": "everything"}})
    code, told = refused(tmp_path / "home", config)
    assert code == 1
    assert "clients.claude.expose" in told
    assert "everything is not one of auto, search, all" in told
    code, told = refused(tmp_path / "home", config, "--expose", "everything")
    assert code == 2
    assert "everything" in told


@ERAS
def test_a_group_over_http_fits_its_clients_too(modern: bool, config: Path, tmp_path: Path) -> None:
    written(config, servers_of(config), groups={"all": ["mine"]})
    with Gateway(tmp_path / "home", config) as gateway, ExitStack() as stack:
        webs = [Web(gateway.port, path="/groups/all/mcp", modern=modern) for _ in range(2)]
        one, two = (stack.enter_context(web) for web in webs)
        assert not NamedClient(one, CLAUDE).searches
        assert NamedClient(two, GEMINI).searches


def test_the_command_line_of_a_gateway_decides_for_its_http_clients(
    config: Path, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    for option in (("--expose", "search"), ("--client", "gemini")):
        with Gateway(home, config, *option) as gateway, Web(gateway.port, modern=True) as web:
            assert NamedClient(web, CLAUDE).searches
