"""A server's own word that a list has changed: passed on at its door, weighed where lists merge."""

import json
from pathlib import Path

from tests.rigs.running import shelf
from tests.serve.gateway import Gateway, command, written
from tests.wrap.faults import Wrap, until
from tests.wrap.talk import Client, web

CHANGED = "notifications/tools/list_changed"
SOME = "announce lists"


def names(client: Client) -> set[str]:
    return {tool["name"] for tool in json.loads(client.ask("tools/list"))["tools"]}


def test_an_announcement_passes_wrap_even_if_the_list_compares_equal(tmp_path: Path) -> None:
    (tmp_path / "tools").write_text(SOME)
    with Wrap(tmp_path, "--", *shelf(tmp_path / "tools")) as portico, web(portico.port) as client:
        for number in (1, 2):
            assert client.call("announce") == "announce"
            client.next(CHANGED, number)


def test_merged_lists_announce_only_what_really_changed(tmp_path: Path) -> None:
    (tmp_path / "tools").write_text(SOME)
    config = written(
        tmp_path / "portico.toml",
        {"shelf": command(shelf(tmp_path / "tools"))},
        groups={"one": ["shelf"]},
        gateway={"expose": "all"},
    )
    tools = {"shelf__announce", "shelf__lists"}
    with Gateway(tmp_path, config) as portico, web(portico.port) as first:
        assert until(lambda: names(first) == tools)
    # From now on the tools are known from the start, and nothing of them is news.
    with (
        Gateway(tmp_path, config) as portico,
        web(portico.port) as merged,
        web(portico.port, path="/groups/one/mcp") as group,
        web(portico.port, path="/servers/shelf/mcp") as own,
    ):
        assert names(merged) == names(group) == tools
        own.call("announce")
        own.next(CHANGED)
        (tmp_path / "tools").write_text(f"{SOME} more")
        merged.call("shelf__announce")
        own.next(CHANGED, 2)
        # The merged doors are told later than the own one: all they are told is this change.
        merged.next(CHANGED)
        group.next(CHANGED)
        assert "shelf__more" in names(merged) & names(group)
        assert len(merged.heard(CHANGED)) == 1
        assert len(group.heard(CHANGED)) == 1
