"""A server with very many tools: it is limited, and searches of the others do not wait for it."""

import sys
from pathlib import Path

import pytest

from tests.rigs.running import shelf
from tests.serve.gateway import Entry, Pipes, command, written
from tests.support.shared import ROOT
from tests.wrap.faults import until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("serve-crowd")]

CROWDED = ROOT / "tests" / "serve" / "servers" / "crowded.py"


def crowd(*arguments: int, **more: object) -> Entry:
    """A server with so many tools, on pages of so many."""
    return command([sys.executable, str(CROWDED), *map(str, arguments)], **more)


def small(folder: Path) -> Entry:
    """A server with three tools."""
    (folder / "words").write_text("hammer saw drill")
    return command(shelf(folder / "words"))


def test_a_search_does_not_wait_for_a_server_with_very_many_tools(tmp_path: Path) -> None:
    servers = {"big": crowd(30_000), "small": small(tmp_path)}
    config = written(tmp_path / "portico.toml", servers, gateway={"expose": "search"})
    home = tmp_path / "home"
    with Pipes(home, config) as gateway:
        gateway.initialize()
        gateway.said("refresh_tools")
        assert "small__hammer" in gateway.said("search_tools", query="hammer")
        assert until(lambda: "indexed so far" not in gateway.said("search_tools", query="saw"))
        assert "big__crowd_1" in gateway.said("search_tools", query="people in a hall")
        assert gateway.status()["big"]["tools"] == 10_000
        assert gateway.status()["big"]["omitted"] == {"tools": 20_000}
        assert "10000 of 30000 tools" in gateway.said("gateway_status")
    assert "big lists more than 10000 tools: 20000 or more are left out" in gateway.stderr()
    assert "20000 or more are left out" in (home / "state" / "logs" / "serve.log").read_text()


@pytest.mark.parametrize("pages", [(60,), (60, 7), (60, 20)])
def test_the_limit_can_be_set_for_the_gateway_and_for_each_server(
    tmp_path: Path, pages: tuple[int, ...]
) -> None:
    servers = {"one": crowd(*pages), "two": crowd(*pages, max_tools=50), "small": small(tmp_path)}
    config = tmp_path / "portico.toml"
    written(config, servers, gateway={"expose": "all", "max_tools": 20})
    with Pipes(tmp_path / "home", config) as gateway:
        gateway.initialize()
        gateway.said("refresh_tools")
        status = gateway.status()
        assert {name: one["tools"] for name, one in status.items()} == {
            "one": 20,
            "two": 50,
            "small": 3,
        }
        assert status["one"]["omitted"]["tools"] >= 1
        assert status["small"]["omitted"] == {}
        assert "one__crowd_19" in gateway.tools()
        written(config, servers, gateway={"expose": "all", "max_tools": 60})
        assert until(lambda: gateway.status()["one"]["tools"] == 60)
        assert gateway.status()["one"]["omitted"] == {}
