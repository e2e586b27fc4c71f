"""Servers that list the same in another order and other bytes each time, behind a gateway."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.rigs.running import shuffler
from tests.serve.gateway import Gateway, command, written
from tests.wrap.talk import Web, web
from tests.wrap.test_shuffled import ALL, CHANGED, ERAS, WORDS, everything, notices

pytestmark = pytest.mark.slow

PATHS = ("/mcp", "/groups/some/mcp", "/servers/first/mcp", "/servers/second/mcp")


@pytest.fixture
def words(tmp_path: Path) -> Path:
    file = tmp_path / "words"
    file.write_text(WORDS)
    return file


@pytest.fixture(params=["all", "search"])
def expose(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    return kind


def config_of(folder: Path, words: Path, era: str, expose: str) -> Path:
    servers = {
        "first": command(shuffler(era, words)),
        "second": command(shuffler(era, words, "4")),
    }
    settings = {"expose": expose}
    return written(folder / "portico.toml", servers, groups={"some": ["second"]}, gateway=settings)


@contextmanager
def clients(port: int) -> Iterator[list[Web]]:
    """A client of each era at each endpoint, which hears of all changes."""
    with ExitStack() as stack:
        found = []
        for path in PATHS:
            found.append(stack.enter_context(web(port, path=path)))
            modern = stack.enter_context(web(port, path=path, modern=True))
            modern.request("subscriptions/listen", {"notifications": ALL})
            modern.next("notifications/subscriptions/acknowledged")
            found.append(modern)
        yield found


@ERAS
def test_a_gateway_lists_the_same_bytes_and_announces_nothing(
    era: str, expose: str, tmp_path: Path, words: Path
) -> None:
    config = config_of(tmp_path, words, era, expose)
    with Gateway(tmp_path, config) as portico, clients(portico.port) as some:
        some[0].call("refresh_tools")
        for client in some:
            everything(client)
    seen = []
    for _ in range(2):  # each time another process of Portico
        with Gateway(tmp_path, config) as portico, clients(portico.port) as some:
            for round in range(2):
                seen.append([everything(client) for client in some])
                some[0].call("refresh_tools")
                if round == 1:  # the servers end in the middle of a call, and others are started
                    for client in some[-2:]:
                        client.answer(client.start("die"))
                    some[0].call("refresh_tools")
            seen.append([everything(client) for client in some])
            assert notices(*some) == []
    for found in seen:
        for now, first in zip(found, seen[0], strict=True):
            assert now == first
    merged = json.loads(b"".join(seen[0][0]["prompts/list"]))["prompts"]
    in_order = [f"{name}__{word}" for name in ("first", "second") for word in sorted(WORDS.split())]
    assert [prompt["name"] for prompt in merged] == in_order


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_a_real_change_is_announced_once_at_each_endpoint(
    era: str, tmp_path: Path, words: Path
) -> None:
    config = config_of(tmp_path, words, era, "all")
    with Gateway(tmp_path, config) as portico, clients(portico.port) as some:
        some[0].call("refresh_tools")
        for client in some:
            everything(client)
    with Gateway(tmp_path, config) as portico, clients(portico.port) as some:
        for client in some:
            everything(client)
        some[0].call("refresh_tools")
        words.write_text(f"{WORDS} ten")
        some[0].call("refresh_tools")
        for client in some:
            for method in CHANGED:
                client.next(method)
        some[0].call("refresh_tools")
        assert len(notices(*some)) == len(some) * len(CHANGED)
