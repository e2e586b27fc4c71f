"""Windows that say who they are, and windows of one server: all on the same gateway."""

import http.client
import json
from pathlib import Path

import pytest

from portico.commands.cli.main import main
from tests.rigs.running import everything, shelf
from tests.serve.gateway import (
    Gateway,
    Pipes,
    command,
    refused,
    result_of,
    serve_command,
    text_in,
    written,
)
from tests.support.running import WAIT_S, Piped
from tests.wrap.faults import until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("serve-clients")]


def words(path: Path, *tools: str) -> Path:
    path.write_text(" ".join(tools or (f"{path.name}-book",)))
    return path


def listed(window: Pipes) -> list[str]:
    """The names of the tools; none while the server is exchanged."""
    answer = window.ask("tools/list")
    return [tool["name"] for tool in answer.get("result", {}).get("tools", ())]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    servers = {name: command(shelf(words(tmp_path / name))) for name in ("mine", "others")}
    tables = {"gateway": {"expose": "search"}, "clients.codex": {"expose": "all"}}
    return written(tmp_path / "portico.toml", servers, **tables)


def test_a_window_of_one_server_shows_it_as_it_is(tmp_path: Path) -> None:
    direct = command(everything("--stdio"))
    config = written(
        tmp_path / "portico.toml",
        {"one": direct, "two": command(shelf(words(tmp_path / "two")))},
    )
    with Piped([direct["command"], *direct["args"]]) as alone:
        hello = alone.initialize()["result"]
        tools = alone.ask("tools/list")["result"]["tools"]
        prompts = alone.ask("prompts/list")["result"]["prompts"]
    home = tmp_path / "home"
    with Pipes(home, config) as whole, Pipes(home, config, "--server", "one") as window:
        whole.initialize()
        found = window.initialize()["result"]
        assert found["serverInfo"]["name"] == hello["serverInfo"]["name"]
        assert found.get("instructions") == hello.get("instructions")
        assert window.ask("tools/list")["result"]["tools"] == tools
        assert window.ask("prompts/list")["result"]["prompts"] == prompts
        assert window.owner == whole.owner != 0


def test_a_window_of_one_server_follows_its_entry(config: Path, tmp_path: Path) -> None:
    before = config.read_text()
    with Pipes(tmp_path / "home", config, "--server", "mine") as window:
        window.initialize()
        assert window.tools() == ["mine-book"]
        assert window.said("mine-book") == "mine-book"
        others = words(tmp_path / "new", "new-book")
        config.write_text(before.replace(str(tmp_path / "mine"), str(others)))
        assert until(lambda: listed(window) == ["new-book"])
        assert window.said("new-book") == "new-book"
        config.write_text(before[before.index("[servers.others]") :])
        gone = "the server mine is disabled, or no longer in the config"
        assert until(lambda: gone in str(window.ask("tools/list")))
        config.write_text(before)
        assert until(lambda: listed(window) == ["mine-book"])


def test_a_server_that_cannot_be_served_alone_is_refused(config: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert (
        "there is no server 'min'; did you mean mine?"
        in refused(home, config, "--server", "min")[1]
    )
    told = refused(home, config, "--server", "mine", "--http", "0")[1]
    assert "over HTTP the server is at /servers/mine/mcp" in told
    config.write_text(config.read_text().replace("[servers.mine]", "[servers.mine]\nenabled=false"))
    assert "mine is disabled; enable it with" in refused(home, config, "--server", "mine")[1]
    assert refused(home, config, "--client", "a b")[0] == 2


def test_a_client_gets_the_exposure_that_the_config_has_for_it(
    config: Path, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    seen = {}
    with Pipes(home, config) as first:
        first.initialize()
        for client in ("codex", "unknown"):
            with Pipes(home, config, "--client", client) as window:
                window.initialize()
                seen[client] = "search_tools" in window.tools()
        with Pipes(home, config, "--client", "codex", "--expose", "search") as window:
            window.initialize()
            assert "search_tools" in window.tools()
    assert seen == {"codex": False, "unknown": True}


def test_status_logs_and_metrics_name_the_client(
    config: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("PORTICO_HOME", str(home))
    with Gateway(home, config) as gateway:
        as_codex = serve_command(home, config, "--stdio", "--client", "codex")
        with Piped(as_codex) as window, Piped([*as_codex, "--server", "mine"]) as second:
            window.initialize()
            second.initialize()
            for one, tool in ((window, "mine__mine-book"), (second, "mine-book")):
                answer = one.ask("tools/call", {"name": tool, "arguments": {}})
                assert text_in(result_of(answer)) == "mine-book"
            assert main(["status", "--config", str(config)]) == 0
            assert "2 windows (codex 2)" in capsys.readouterr().out
            assert main(["status", "--config", str(config), "--json"]) == 0
            assert json.loads(capsys.readouterr().out)[0]["clients"] == {"codex": 2}
            reader = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=WAIT_S)
            reader.request("GET", "/metrics")
            page = reader.getresponse().read().decode()
            reader.close()
            assert 'portico_windows{client="codex"} 2.0' in page
        log = home / "state" / "logs" / "serve.log"
        assert until(lambda: log.exists() and log.read_text().count('"client":"codex"') == 2)
