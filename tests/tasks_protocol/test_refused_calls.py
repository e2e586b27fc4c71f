"""Calls that a gateway refuses are refused alike with tasks and without, and nothing is stored."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.serve.gateway import Gateway, serve_command
from tests.support.pairs import pairs
from tests.support.running import REDACTING
from tests.tasks_protocol.doors import ERAS
from tests.tasks_protocol.follower import ABLE, Follower, FollowingPipes, FollowingWeb
from tests.tasks_protocol.test_linked_gateway import KINDS, Book, called

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("refused-calls")]

HIDES_LOOKUP = (REDACTING[0], "hides-lookup")
DOORS = ("/mcp", "/servers/child/mcp", "stdio")
REFUSED = ("lookup", "denied", "absent")
WRONG: list[dict[str, str]] = [
    {"mcp-param-place": "here"},
    {"mcp-param-place": "=?base64?%%%?="},
    {},
]
"""Headers that do not mirror the argument `there`: another value, no value, and none at all."""


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Book:
    return Book(tmp_path_factory.mktemp("refused"), sync_budget_s=30)


@pytest.fixture(scope="module")
def gateway(book: Book) -> Iterator[Gateway]:
    with Gateway(book.home, book.config, by=HIDES_LOOKUP) as running:
        yield running


@contextmanager
def connected(book: Book, gateway: Gateway, door: str, era: str) -> Iterator[Follower]:
    """A client of a gateway that hides `lookup` and denies `denied`."""
    modern = era == "modern"
    client: FollowingPipes | FollowingWeb
    if door == "stdio":
        words = serve_command(book.home, book.config, "--alone", by=HIDES_LOOKUP)
        client = FollowingPipes(book.home, words=words, modern=modern)
    else:
        client = FollowingWeb(gateway.port, door, modern=modern)
    with client:
        if not modern:
            client.hello(ABLE)
        yield client
        assert client.oracle.problems == []


def stored(book: Book) -> str:
    """All tasks of the gateway."""
    return book.command("tasks", "list", "--json")


@pytest.mark.soak
@pytest.mark.parametrize(("door", "tool", "era"), pairs(DOORS, REFUSED, ERAS))
def test_a_tool_that_is_hidden_denied_or_unknown_never_becomes_a_task(
    book: Book, gateway: Gateway, door: str, era: str, tool: str
) -> None:
    name = tool if door.startswith("/servers") else f"child__{tool}"
    with connected(book, gateway, door, era) as client:
        plain = called(client, name)
        assert tool in plain["error"]["message"]
        assert client.called(name)["error"] == plain["error"]
        if "__" in name:
            client.executes = True
            called(client, "refresh_tools")  # the answers count the tools that are known
            plain = called(client, "execute_tool", name=name, arguments={})
            assert answer_of(client.called(name)) == answer_of(plain)
    assert stored(book) == "[]\n"


def answer_of(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer without its id."""
    return {key: answer[key] for key in ("result", "error") if key in answer}


@pytest.mark.parametrize("kind", [*KINDS, "direct"])
@pytest.mark.parametrize("headers", WRONG, ids=str)
def test_a_call_with_wrong_headers_never_becomes_a_task(
    book: Book, gateway: Gateway, kind: str, headers: dict[str, str]
) -> None:
    door, name = "/mcp", f"{kind}__region"
    if kind == "direct":
        door, name = "/servers/child/mcp", "region"
    with FollowingWeb(gateway.port, door, modern=True) as client:
        client.headers, client.able = headers, {}
        plain = called(client, name, place="there")
        assert plain["error"]["code"] == -32020
        client.able = ABLE
        assert called(client, name, place="there")["error"] == plain["error"]
        with_task = {"name": name, "arguments": {"place": "there"}, "task": {}}
        assert client.fetch("tools/call", with_task)["error"] == plain["error"]
        assert stored(book) == "[]\n"


def test_a_call_with_right_headers_becomes_a_task(tmp_path: Path) -> None:
    book = Book(tmp_path, sync_budget_s=30)
    with (
        Gateway(book.home, book.config, by=HIDES_LOOKUP) as gateway,
        FollowingWeb(gateway.port, modern=True) as client,
    ):
        client.headers, client.prefix = {"mcp-param-place": "there"}, "inside__"
        id = client.begin("region", place="there")
        assert client.outcome(id)["result"]["content"][0]["text"] == "in there"
        assert id in stored(book)
        assert client.oracle.problems == []
