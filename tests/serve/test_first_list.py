"""Many clients ask for the tools once, at the start, and some leave if there are none."""

import time
from pathlib import Path

import pytest

from portico.gateway.endpoints.exposure import FIRST_LIST_TIMEOUT_S
from tests.rigs.running import bad, shelf
from tests.serve.gateway import Entry, Pipes, command, written

pytestmark = pytest.mark.slow


def late(words: list[str]) -> Entry:
    """A server that takes a moment to start, as those of npx and uvx do."""
    return command(["sh", "-c", 'sleep 1; exec "$@"', "late", *words])


@pytest.mark.parametrize("option", ["--alone", "--no-refresh"])
def test_the_very_first_list_has_the_tools_of_all_servers(tmp_path: Path, option: str) -> None:
    for name in ("one", "two"):
        (tmp_path / name).write_text("book")
    servers = {"one": command(shelf(tmp_path / "one")), "two": late(shelf(tmp_path / "two"))}
    servers["broken"] = command(bad("stdio", "exits"))
    config = written(tmp_path / "portico.toml", servers)
    with Pipes(tmp_path / "home", config, "--expose", "all", option) as gateway:
        gateway.initialize()
        assert gateway.tools() == ["one__book", "two__book"]


def test_a_server_nobody_knows_yet_keeps_nobody_from_what_is_known(tmp_path: Path) -> None:
    (tmp_path / "one").write_text("book")
    servers = {"one": command(shelf(tmp_path / "one"))}
    config = written(tmp_path / "portico.toml", servers)
    with Pipes(tmp_path / "home", config, "--expose", "all") as gateway:
        gateway.initialize()
        assert gateway.tools() == ["one__book"]
    written(config, {**servers, "silent": command(["sleep", "60"])})
    with Pipes(tmp_path / "home", config, "--expose", "all") as gateway:
        gateway.initialize()
        before = time.monotonic()  # the promise is to not wait for all of it
        assert gateway.tools() == ["one__book"]
        assert time.monotonic() - before < FIRST_LIST_TIMEOUT_S
        assert gateway.status()["silent"]["pending"]


def test_the_very_first_start_exposes_what_later_ones_do(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).write_text("book")
    servers = {"one": command(shelf(tmp_path / "one")), "two": late(shelf(tmp_path / "two"))}
    config = written(tmp_path / "portico.toml", servers)
    for _ in ("first", "later"):
        with Pipes(tmp_path / "home", config) as gateway:
            gateway.initialize()
            assert gateway.tools() == ["one__book", "two__book"]


def test_a_first_start_with_many_tools_exposes_the_search_as_later_ones_do(tmp_path: Path) -> None:
    (tmp_path / "one").write_text(" ".join(f"book-{number}" for number in range(40)))
    config = written(tmp_path / "portico.toml", {"one": late(shelf(tmp_path / "one"))})
    for _ in ("first", "later"):
        with Pipes(tmp_path / "home", config) as gateway:
            gateway.initialize()
            assert "search_tools" in gateway.tools()


def test_a_first_start_whose_servers_all_fail_waits_for_none(tmp_path: Path) -> None:
    config = written(tmp_path / "portico.toml", {"broken": command(bad("stdio", "exits"))})
    with Pipes(tmp_path / "home", config) as gateway:
        gateway.initialize()
        assert gateway.tools() == []
