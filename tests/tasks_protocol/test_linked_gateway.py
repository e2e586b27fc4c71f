"""Tasks of a gateway with links: promoted, resumed, read elsewhere; hidden and denied tools."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from tests.serve.gateway import Gateway, command, serve_command, written
from tests.support.pairs import pairs
from tests.support.running import REDACTING, WAIT_S
from tests.support.shared import ROOT
from tests.tasks_protocol.doors import ERAS
from tests.tasks_protocol.follower import ABLE, Follower, FollowingPipes, FollowingWeb
from tests.tasks_protocol.gated import Gated
from tests.wrap.faults import Wrap, until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("linked-gateway")]

BOOK = ROOT / "tests" / "tasks_protocol" / "servers" / "book.py"
SECRET = "ana@example.com"
CLEAN = "write to [e-mail]"
KINDS = ("child", "inside")
"""The component in a process of its own, and in that of the gateway."""
WAYS = [(era, kind) for era in ERAS for kind in KINDS]
EACH = pytest.mark.parametrize(("era", "kind"), WAYS)


class Book(Gated):
    """A gateway whose servers return addresses."""

    def __init__(self, folder: Path, **gateway: Any) -> None:
        super().__init__(folder, "modern")
        child = command([sys.executable, "-m", "portico", "run", str(BOOK)])
        tables: dict[str, Any] = {
            "gateway": {"expose": "all", **gateway},
            "tasks": {"lease_s": 1},
            "components.inside": {"path": str(BOOK), "in_process": True},
        }
        denied = {"deny": ["denied"]}
        self.config = written(
            folder / "portico.toml", {"child": {**child, "tools": denied}}, **tables
        )


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Book:
    folder = tmp_path_factory.mktemp("book")
    return Book(folder, sync_budget_s=0.2, log=str(folder / "log"))


@pytest.fixture(scope="module")
def gateway(book: Book) -> Iterator[Gateway]:
    with Gateway(book.home, book.config, by=REDACTING) as running:
        yield running


@contextmanager
def client_of(gateway: Wrap, era: str, able: dict[str, Any] = ABLE) -> Iterator[Follower]:
    with FollowingWeb(gateway.port, modern=era == "modern") as client:
        client.able = able
        if not client.modern:
            client.hello(able)
        yield client
        assert client.oracle.problems == []


def called(client: Follower, tool: str, **arguments: Any) -> dict[str, Any]:
    """The whole answer to a call that mentions no task."""
    return client.fetch("tools/call", {"name": tool, "arguments": arguments})


def text(answer: dict[str, Any]) -> str:
    return "\n".join(block["text"] for block in answer["result"]["content"])


@pytest.mark.soak
@pytest.mark.parametrize(("era", "kind", "tool"), pairs(ERAS, KINDS, ["lookup", "plain"]))
def test_a_promoted_call_passes_the_link_before_it_is_stored(
    gateway: Gateway, book: Book, tmp_path: Path, era: str, kind: str, tool: str
) -> None:
    with client_of(gateway, era, {}) as client, client_of(gateway, "modern") as other:
        promoted = called(client, f"{kind}__{tool}", gate=str(tmp_path / "gate"))
        assert "It continues as task ptk_" in text(promoted)
        id = promoted["result"]["structuredContent"]["task_id"]
        (tmp_path / "gate").touch()
        assert text(called(client, "task_status", task_id=id, wait_s=50)) == CLEAN
        assert other.outcome(id)["result"]["content"][0]["text"] == CLEAN
        assert CLEAN in book.command("tasks", "wait", id)
        assert SECRET not in book.command("tasks", "show", id, "--json")


@EACH
def test_a_failed_call_and_its_resumed_task_pass_the_link(
    gateway: Gateway, book: Book, tmp_path: Path, era: str, kind: str
) -> None:
    with client_of(gateway, era) as client:
        client.prefix = f"{kind}__"
        id = client.begin("lookup", ready=str(tmp_path / "ready"))
        failed = client.outcome(id)
        assert "not yet, ask [e-mail]" in json.dumps(failed)
        (tmp_path / "ready").touch()
        again = book.resumed(id)
        assert client.outcome(again)["result"]["content"][0]["text"] == CLEAN
        shown = "".join(book.command("tasks", "show", one, "--json") for one in (id, again))
        assert SECRET not in shown


@EACH
def test_a_stored_call_is_logged_with_its_task_and_counted_once(
    gateway: Gateway, book: Book, era: str, kind: str
) -> None:
    with client_of(gateway, era) as client:
        client.prefix = f"{kind}__"
        id = client.begin("lookup")
        client.outcome(id)
        assert until(lambda: made(book, kind, id)), lines(book)
        assert len(made(book, kind, id)) == 1
        # Calls are counted and written in batches: in the end there are as many of both.
        assert until(lambda: counted(gateway, kind) == len(made(book, kind)))


def lines(book: Book) -> list[dict[str, Any]]:
    """The whole log."""
    path = book.home.parent / "log"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def made(book: Book, kind: str, id: str = "") -> list[dict[str, Any]]:
    """The calls of a tool in the log that its server got; those of one task, if it is given."""
    calls = [one for one in lines(book) if (one.get("server"), one.get("tool")) == (kind, "lookup")]
    return [one for one in calls if not id or one.get("task") == id]


def counted(gateway: Gateway, kind: str) -> int:
    """How many calls of a tool the metrics have counted, under its own name or the gateway's."""
    with urlopen(f"http://127.0.0.1:{gateway.port}/metrics", timeout=WAIT_S) as answer:
        page = answer.read().decode()
    names = (f'server="{kind}",tool="lookup"', f'tool="{kind}__lookup"')
    lines = [line for line in page.splitlines() if line.startswith("portico_calls_total{")]
    return sum(
        int(float(line.split()[-1])) for line in lines if any(name in line for name in names)
    )


@pytest.mark.parametrize("era", ERAS)
def test_a_denied_tool_never_becomes_a_task(gateway: Gateway, book: Book, era: str) -> None:
    stored = book.command("tasks", "list", "--json")
    with client_of(gateway, era) as client:
        plain = called(client, "child__denied")
        assert client.called("child__denied")["error"] == plain["error"]
    assert book.command("tasks", "list", "--json") == stored


@contextmanager
def behind(book: Book, link: str, over: str, era: str) -> Iterator[Follower]:
    """A client of the gateway in a program with a link, over HTTP or of its own."""
    by = (REDACTING[0], link)
    if over == "http":
        with Gateway(book.home, book.config, by=by) as gateway, client_of(gateway, era) as client:
            yield client
        return
    words = serve_command(book.home, book.config, by=by)
    with FollowingPipes(book.home, words=words, modern=era == "modern") as window:
        if not window.modern:
            window.hello(ABLE)
        yield window
        assert window.oracle.problems == []


FRONTS = ("http", "stdio")
OVER = pytest.mark.parametrize("over", FRONTS)


@OVER
@pytest.mark.parametrize("era", ERAS)
def test_the_tasks_of_a_tool_that_a_link_hides_are_not_readable(
    tmp_path: Path, era: str, over: str
) -> None:
    book = Book(tmp_path, sync_budget_s=30)
    with book.gateway() as open_gateway, client_of(open_gateway, era) as client:
        client.prefix = "child__"
        id = client.begin("lookup")
        client.outcome(id)
    with behind(book, "hides-lookup", over, era) as client:
        for method in ("tasks/get", "tasks/cancel"):
            assert "task not found" in client.fetch(method, {"taskId": id})["error"]["message"]
        if not client.modern:
            answer = client.fetch("tasks/result", {"taskId": id})
            assert "task not found" in answer["error"]["message"]
        status = called(client, "task_status", task_id=id)
        assert "there is no task" in text(status)
        plain = called(client, "child__lookup")
        assert client.called("child__lookup")["error"] == plain["error"]
    assert id in book.command("tasks", "list", "--json")
    assert SECRET in book.command("tasks", "wait", id)


@pytest.mark.soak
@pytest.mark.parametrize(("over", "era", "kind"), pairs(FRONTS, ERAS, KINDS))
def test_a_link_that_refuses_a_resumed_call_ends_its_task(
    tmp_path: Path, era: str, kind: str, over: str
) -> None:
    book, ready = Book(tmp_path, sync_budget_s=30), tmp_path / "ready"
    with book.gateway() as open_gateway, client_of(open_gateway, era) as client:
        client.prefix = f"{kind}__"
        id = client.begin("lookup", ready=str(ready))
        assert "not yet" in json.dumps(client.outcome(id))
    ready.touch()
    with behind(book, "refuses-lookup", over, era) as client:
        again = book.resumed(id)
        refused = json.dumps(client.outcome(again))
        assert "not today" in refused
        assert SECRET not in refused + book.command("tasks", "show", again, "--json")


@OVER
@pytest.mark.parametrize("era", ERAS)
def test_a_promoted_call_of_a_window_passes_the_link(tmp_path: Path, era: str, over: str) -> None:
    book, gate = Book(tmp_path, sync_budget_s=0.2), tmp_path / "gate"
    with behind(book, "redacts", over, era) as client:
        client.able = {}
        promoted = called(client, "child__plain", gate=str(gate))
        id = promoted["result"]["structuredContent"]["task_id"]
        gate.touch()
        assert text(called(client, "task_status", task_id=id, wait_s=50)) == CLEAN
        assert SECRET not in book.command("tasks", "show", id, "--json")
