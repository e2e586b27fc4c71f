"""A gateway for one group of the config has its servers, and starts no other."""

import http.client
from pathlib import Path

import pytest

from tests.rigs.running import shelf
from tests.serve.gateway import Gateway, Pipes, command, refused, written
from tests.support.running import WAIT_S
from tests.wrap.faults import command_line, descendants, until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("serve-group")]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Two groups; who is in the second needs a variable that is not set."""
    servers = {name: command(shelf(_words(tmp_path / name))) for name in ("mine", "others")}
    servers["others"]["env"] = {"TOKEN": "${NOBODY_HAS_SET_THIS}"}
    groups = {"work": ["mine"], "home": ["others"]}
    return written(tmp_path / "portico.toml", servers, groups=groups)


def _words(path: Path) -> Path:
    path.write_text(f"{path.name}-book")
    return path


def started(gateway: Pipes) -> str:
    """The command lines of all that it started."""
    return " ".join(command_line(pid) for pid in descendants(gateway.owner))


def test_only_the_servers_of_the_group_are_there_and_started(config: Path, tmp_path: Path) -> None:
    with Pipes(tmp_path / "home", config, "--group", "work") as gateway:
        gateway.initialize()
        assert until(lambda: not gateway.status()["mine"]["pending"])
        assert list(gateway.status()) == ["mine"]
        assert gateway.said("execute_tool", name="mine__mine-book", arguments={}) == "mine-book"
        assert str(tmp_path / "mine") in started(gateway)
        assert str(tmp_path / "others") not in started(gateway)
    # Few tools are shown as they are, however many the other groups have.
    with Pipes(tmp_path / "home", config, "--group", "work") as gateway:
        gateway.initialize()
        assert gateway.tools() == ["mine__mine-book"]


def test_over_http_no_door_leads_out_of_the_group(config: Path, tmp_path: Path) -> None:
    with Gateway(tmp_path / "home", config, "--group", "work") as gateway:
        found = {}
        for door in ("servers/mine", "groups/work", "servers/others", "groups/home"):
            asker = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=WAIT_S)
            asker.request("POST", f"/{door}/mcp", "{}", {"content-type": "application/json"})
            found[door] = asker.getresponse().status
            asker.close()
    assert [door for door, status in found.items() if status != 404] == [
        "servers/mine",
        "groups/work",
    ]


def test_a_group_that_is_not_there_is_refused_or_kept_as_it_was(
    config: Path, tmp_path: Path
) -> None:
    code, words = refused(tmp_path / "home", config, "--group", "play")
    assert code == 1
    assert "there is no group 'play'; choose from work, home" in words
    with Pipes(tmp_path / "home", config, "--group", "work") as gateway:
        gateway.initialize()
        assert until(lambda: not gateway.status()["mine"]["pending"])
        config.write_text(config.read_text().replace("groups.work", "groups.play"))
        assert until(lambda: "there is no group 'work'" in gateway.stderr())
        assert gateway.said("execute_tool", name="mine__mine-book", arguments={}) == "mine-book"
