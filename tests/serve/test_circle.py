"""A config may lead back to its own gateway, as a client's file does that has Portico in it."""

import sys
from pathlib import Path

import pytest

from tests.rigs.running import shelf
from tests.serve.gateway import Entry, Gateway, Pipes, command, refused, written
from tests.wrap.faults import until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("serve-circle")]

ITSELF = "again is this gateway itself; remove it from the config"


def entries(folder: Path, again: Entry) -> dict[str, Entry]:
    """One server, and the gateway."""
    (folder / "words").write_text("book")
    return {"shelf": command(shelf(folder / "words")), "again": again}


def test_a_gateway_that_is_its_own_server_is_left_out(tmp_path: Path) -> None:
    home, config = tmp_path / "home", tmp_path / "portico.toml"
    words = [sys.executable, "-m", "portico", "serve", "--config", str(config), "--expose", "all"]
    again = command(words, env={"PORTICO_HOME": str(home)})
    written(config, entries(tmp_path, again), gateway={"expose": "all"})
    with Pipes(home, config) as gateway:
        gateway.initialize()
        assert until(lambda: gateway.status()["again"]["error"] == ITSELF)
        assert until(lambda: gateway.tools() == ["shelf__book"])
        # Its lists have just changed, which it may hear of itself, and nothing comes of that.
        gateway.said("refresh_tools")
        assert gateway.tools() == ["shelf__book"]
        assert gateway.status()["again"]["pending"]


def test_so_is_a_component_that_serves_the_same_config(tmp_path: Path) -> None:
    home, config = tmp_path / "home", tmp_path / "portico.toml"
    words = [sys.executable, "-m", "portico", "serve", "--config", str(config)]
    again = command(words, env={"PORTICO_HOME": str(home)})
    servers = entries(tmp_path, {})
    del servers["again"]
    written(config, servers, gateway={"expose": "all"}, **{"components.again": again})
    with Pipes(home, config) as gateway:
        gateway.initialize()
        assert until(lambda: gateway.status()["again"]["error"] == ITSELF)
        assert until(lambda: gateway.tools() == ["shelf__book"])


def running(folder: Path, *components: str) -> Path:
    """A config with a server `again`, which runs components of the same config."""
    config = folder / "portico.toml"
    argv = [sys.executable, "-m", "portico", "run", *components, "--config", str(config)]
    again = command(argv, env={"PORTICO_HOME": str(folder / "home")})
    return written(config, entries(folder, again), gateway={"expose": "all"})


def test_an_alias_that_runs_itself_ends_with_the_reason(tmp_path: Path) -> None:
    with Pipes(tmp_path / "home", running(tmp_path, "again")) as gateway:
        gateway.initialize()
        why = "the composition (again) is a component of itself"
        assert until(lambda: why in gateway.status()["again"]["error"])
        assert until(lambda: gateway.tools() == ["shelf__book"])


def test_the_other_components_of_such_an_alias_are_served(tmp_path: Path) -> None:
    with Pipes(tmp_path / "home", running(tmp_path, "shelf", "again")) as gateway:
        gateway.initialize()
        assert until(lambda: gateway.tools() == ["shelf__book", "again__book"])


def test_a_gateway_at_its_own_url_is_left_out(tmp_path: Path) -> None:
    config = tmp_path / "portico.toml"
    shelf_alone = entries(tmp_path, {})
    del shelf_alone["again"]
    written(config, shelf_alone)
    with Gateway(tmp_path / "home", config) as gateway:
        url = f"http://127.0.0.1:{gateway.port}/mcp"
        written(config, entries(tmp_path, {"url": url}))
        assert until(lambda: "again" in gateway.status())
        assert until(lambda: gateway.status()["again"]["error"] == ITSELF)


def test_gateways_that_start_each_other_come_to_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = written(tmp_path / "portico.toml", {"a": command(["true"])})
    monkeypatch.setenv("PORTICO_CHILD", ":".join("123456789"))
    code, words = refused(tmp_path / "home", config)
    assert code == 1
    assert f"remove the server of {config} that starts Portico" in words
