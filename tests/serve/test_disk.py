"""A gateway whose disk fails still lists, searches and calls, and reports what it cannot keep."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.rigs.running import shelf
from tests.serve.gateway import Pipes, command, written
from tests.support.soak import times
from tests.wrap.faults import until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("serve-disk")]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A config with one server, whose tools are searched."""
    (tmp_path / "words").write_text("hammer saw drill")
    tools = command(shelf(tmp_path / "words"))
    return written(tmp_path / "portico.toml", {"tools": tools}, gateway={"expose": "search"})


def damaged(cache: Path) -> None:
    """Replace the stored indexes."""
    for path in (cache / "search").glob("*.index"):
        path.write_bytes(b"?" * 500)


def full(cache: Path) -> None:
    """Replace the folders by files, so that nothing can be read or written in them."""
    for name in ("search", "catalogs"):
        for path in (cache / name).iterdir():
            path.unlink()
        (cache / name).rmdir()
        (cache / name).touch()


@pytest.mark.parametrize("breaks", [damaged, full])
def test_search_answers_whatever_the_disk_does(
    tmp_path: Path, config: Path, breaks: Callable[[Path], None]
) -> None:
    home = tmp_path / "home"
    log = home / "state" / "logs" / "serve.log"
    with Pipes(home, config) as gateway:
        gateway.initialize()
        gateway.said("refresh_tools")
        assert "hammer" in gateway.said("search_tools", query="hammer")
    breaks(home / "cache")
    with Pipes(home, config) as gateway:
        gateway.initialize()
        assert until(lambda: log.read_text().count(" serves ") == 2), "no log is pending now"
        assert "hammer" in gateway.said("search_tools", query="hammer")
        gateway.said("refresh_tools")
        assert "tools__saw" in gateway.said("search_tools", query="saw")
    assert "portico: " in gateway.stderr()
    assert "Traceback" not in gateway.stderr()
    assert f"{home / 'cache'}" in log.read_text()


@pytest.mark.soak
def test_catalogs_of_servers_whose_arguments_changed_do_not_pile_up(
    tmp_path: Path, record_property: Callable[[str, str], None]
) -> None:
    home, config = tmp_path / "home", tmp_path / "portico.toml"
    (tmp_path / "words").write_text("hammer saw drill")

    def write(number: int) -> None:
        tools = command(shelf(tmp_path / "words"), env={"ACCOUNT": str(number)})
        written(config, {"tools": tools}, gateway={"expose": "all"})

    write(0)
    with Pipes(home, config) as gateway:
        gateway.initialize()
        gateway.said("refresh_tools")
        before = len(list((home / "cache" / "catalogs").iterdir()))
        for number in range(1, times(5, 300)):
            write(number)
            assert until(lambda name=f"tools__of-{number}": name in gateway.tools())
        assert until(lambda: len(list((home / "cache" / "catalogs").iterdir())) == before)
    record_property("soak", f"{times(5, 300) - 1} changes, as many files as before")
