"""Approvals that never come: the client leaves, or its time is over. Nothing is called."""

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.agents.delegation.delegations import Crew, acp
from tests.examples.served import example
from tests.rigs.wire import dumps, raw_member
from tests.serve.gateway import Gateway, serve_command
from tests.support.pairs import pairs
from tests.support.running import APPROVING, WAIT_S, http_server, portico_run
from tests.support.shared import ROOT
from tests.tasks_protocol.doors import DOORS, ERAS, Doors
from tests.tasks_protocol.follower import ACCEPT, Follower, FollowingPipes, FollowingWeb
from tests.wrap.faults import wrap_command

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("unapproved")]

RIG = ROOT / "tests" / "rigs" / "noting_server.py"
LATE, HURRYING = [(APPROVING[0], link) for link in ("approves-late", "hurries")]
ABLE: dict[str, Any] = {"elicitation": {"form": {}}}
LIBRARY = ("run", "run-stdio", "composed", "composed-stdio")
WAYS = [(door, era) for door in (*LIBRARY, *DOORS) for era in ERAS]
EACH_WAY = pytest.mark.parametrize("way", WAYS, ids="-".join)


class Hesitating(Follower):
    """A client that answers no question until it is told to."""

    able = ABLE

    def hear(self, raw: bytes) -> None:
        """Keep a message, and answer nothing."""
        if raw_member(raw, "method") is None or raw_member(raw, "id") is None:
            super().hear(raw)
            return
        self.oracle.server_sent(raw)
        with self._news:
            self.told.append(raw)
            self._news.notify_all()

    def accept(self, question: bytes, answer: dict[str, Any] = ACCEPT) -> None:
        """Answer a question of a legacy server."""
        id = raw_member(question, "id") or b""
        self.send(b'{"jsonrpc":"2.0","id":%s,"result":%s}' % (id, dumps(answer)))

    def asked(self, number: int = 1) -> bytes:
        """The whole question of this number."""
        self.next("elicitation/create", number)
        found = [raw for raw in self.told if raw_member(raw, "method") == b'"elicitation/create"']
        return found[number - 1]


class HesitatingWeb(Hesitating, FollowingWeb):
    """Over HTTP."""

    def vanish(self, id: bytes) -> None:
        """Drop the connection of a call, and end the session."""
        if id in self._open and not self.modern:
            self.hang_up(id)
        self.leave()


class HesitatingPipes(Hesitating, FollowingPipes):
    """Over stdio."""

    def vanish(self, id: bytes) -> None:
        """Close the pipe; the server must end by itself."""
        self._in.close()
        assert self.child.process.wait(WAIT_S) == 0, self.child.stderr()


Hesitant = HesitatingWeb | HesitatingPipes


class NotingDoors(Doors):
    """All ways to the tool that leaves a trace, behind a link that asks."""

    def __init__(self, folder: Path, by: Sequence[str]) -> None:
        super().__init__(folder, by)
        self._ports: dict[str, int] = {}
        self._standing: dict[tuple[str, ...], Hesitant] = {}
        self._count = 0

    @staticmethod
    def server() -> list[str]:
        return [sys.executable, str(RIG)]

    def visit(
        self, stack: ExitStack, way: tuple[str, str], able: dict[str, Any] = ABLE
    ) -> Hesitant:
        """A new client; over stdio, of a new process."""
        door, era = way
        self._count += 1
        home, modern = self._folder / f"home-{self._count}", era == "modern"
        client: Hesitant
        if not door.endswith("stdio"):
            path = f"/servers/{era}/mcp" if door == "server" else "/mcp"
            client = HesitatingWeb(self._port(door, era), path, modern=modern)
        else:
            client = HesitatingPipes(home, words=self._words(door, era, home), modern=modern)
        stack.enter_context(client)
        client.executes = door.startswith("executed")
        if door.startswith(("merged", "executed")):
            client.prefix = f"{era}__"
        client.able = able
        if not modern:
            client.hello(able)
        return client

    def standing(self, way: tuple[str, str], able: dict[str, Any] = ABLE) -> Hesitant:
        """A client that stays for the tests after this one, and has heard nothing yet."""
        door, era = way
        # To execute a tool is another way to call, and a modern client says with each request
        # what it can: neither is another connection.
        key = (door.replace("executed", "merged"), era, *(able if era == "legacy" else ()))
        if key not in self._standing:
            self._standing[key] = self.visit(self.stack, way, able)
        client = self._standing[key]
        client.executes, client.able = door.startswith("executed"), able
        client.told.clear()
        return client

    def _words(self, door: str, era: str, home: Path) -> list[str]:
        if door == "wrap-stdio":
            return wrap_command(home, "--era", era, "--", *self.server(), by=self._by)
        return self._library(door) if door in LIBRARY else self.serve(home)

    def _library(self, door: str) -> list[str]:
        if door.startswith("composed"):  # the example as a component of its own
            return portico_run(Path(example("approve")), str(RIG))
        return portico_run(RIG, by=self._by)

    def _port(self, door: str, era: str) -> int:
        if door not in LIBRARY:
            return self.port(door, era)
        if door not in self._ports:
            composed = door == "composed"
            served = http_server(Path(example("approve")), str(RIG)) if composed else None
            server = served or http_server(RIG, by=self._by)
            self._ports[door] = self.stack.enter_context(server).port
        return self._ports[door]


def note(client: Hesitant, file: Path, text: str) -> bytes:
    """Begin to write a line into a file; the id of the call."""
    return client.request("tools/call", client.call_of("note", {"file": str(file), "text": text}))


def approved(client: Hesitant, file: Path, text: str) -> None:
    """Write a line into a file, with an approval."""
    before = len(client.heard("elicitation/create"))
    id = note(client, file, text)
    if client.modern:
        result = json.loads(client.result(id))
        answer = client.fetch("tools/call", answered(client, file, text, result))
    else:
        client.accept(client.asked(before + 1))
        answer = json.loads(client.answer(id))
    assert answer["result"]["content"][0]["text"] == f"noted {text}", answer


def answered(
    client: Hesitant, file: Path, text: str, result: Any, answer: dict[str, Any] = ACCEPT
) -> dict[str, Any]:
    """The params of the next round of a modern client."""
    assert result["resultType"] == "input_required", result
    (key,) = result["inputRequests"]
    params = client.call_of("note", {"file": str(file), "text": text})
    return {**params, "inputResponses": {key: answer}, "requestState": result["requestState"]}


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NotingDoors]:
    with NotingDoors(tmp_path_factory.mktemp("unapproved"), APPROVING) as ready:
        yield ready


@EACH_WAY
def test_nothing_is_called_for_a_client_that_has_left(
    doors: NotingDoors, way: tuple[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "notes"
    with ExitStack() as stack:
        client = doors.visit(stack, way)
        id = note(client, file, "left")
        question = b""
        if client.modern:
            assert json.loads(client.result(id))["resultType"] == "input_required"
        else:
            question = client.asked()
        client.vanish(id)
        if isinstance(client, HesitatingWeb):
            other = doors.visit(stack, way)
            if question:
                other.accept(question)  # it was not asked
            approved(other, file, "approved")
            assert file.read_text() == "approved\n"
        else:
            assert not file.exists()
    assert client.oracle.problems == []


@EACH_WAY
def test_nothing_is_called_once_the_client_has_stopped_waiting(
    doors: NotingDoors, way: tuple[str, str], tmp_path: Path
) -> None:
    file, client = tmp_path / "notes", doors.standing(way)
    id = note(client, file, "late")
    if client.modern:
        assert json.loads(client.result(id))["resultType"] == "input_required"
    question = b"" if client.modern else client.asked()
    if not client.modern or isinstance(client, HesitatingPipes):
        client.notify("notifications/cancelled", b'{"requestId":%s}' % id)
    if question:
        withdrawn = json.loads(client.next("notifications/cancelled"))
        assert withdrawn["requestId"] == json.loads(question)["id"]
        client.accept(question)  # too late
    approved(client, file, "approved")
    assert file.read_text() == "approved\n"
    assert client.oracle.problems == []


STDIO = [way for way in WAYS if way[0].endswith("stdio")]


@pytest.mark.parametrize("way", STDIO, ids="-".join)
def test_a_call_that_a_person_declines_over_stdio_is_not_made(
    doors: NotingDoors, way: tuple[str, str], tmp_path: Path
) -> None:
    file, client = tmp_path / "notes", doors.standing(way)
    for number, action in enumerate(("decline", "cancel"), 1):
        id, no = note(client, file, action), {"action": action}
        if client.modern:
            result = json.loads(client.result(id))
            params = answered(client, file, action, result, no)
            answer = json.dumps(client.fetch("tools/call", params))
        else:
            client.accept(client.asked(number), no)
            answer = client.answer(id).decode()
        assert "a person did not approve it" in answer
    assert not file.exists()
    assert client.oracle.problems == []


@pytest.mark.parametrize("way", STDIO, ids="-".join)
def test_a_client_over_stdio_that_cannot_ask_is_refused(
    doors: NotingDoors, way: tuple[str, str], tmp_path: Path
) -> None:
    file, client = tmp_path / "notes", doors.standing(way, {})
    answer = client.answer(note(client, file, "unasked")).decode()
    assert "requires the elicitation capability" in answer
    assert not file.exists()
    assert client.oracle.problems == []


IN_RIG = [way for way in WAYS if not way[0].startswith("composed")]
LEGACY = [way for way in IN_RIG if way[1] == "legacy"]
MODERN = [way for way in IN_RIG if way[1] == "modern"]


@pytest.fixture(scope="module")
def late_doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NotingDoors]:
    with NotingDoors(tmp_path_factory.mktemp("late"), LATE) as ready:
        yield ready


@pytest.mark.parametrize("way", MODERN, ids="-".join)
def test_an_approval_of_a_modern_client_expires(
    late_doors: NotingDoors, way: tuple[str, str], tmp_path: Path
) -> None:
    file, client = tmp_path / "notes", late_doors.standing(way)
    result = json.loads(client.result(note(client, file, "late")))
    answer = client.fetch("tools/call", answered(client, file, "late", result))
    assert "start over" in json.dumps(answer)
    assert not file.exists()
    assert client.oracle.problems == []


@pytest.fixture(scope="module")
def hurrying_doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NotingDoors]:
    with NotingDoors(tmp_path_factory.mktemp("hurried"), HURRYING) as ready:
        yield ready


@pytest.mark.parametrize("way", LEGACY, ids="-".join)
def test_a_link_that_stops_waiting_withdraws_its_question(
    hurrying_doors: NotingDoors, way: tuple[str, str], tmp_path: Path
) -> None:
    file, client = tmp_path / "notes", hurrying_doors.standing(way)
    id = note(client, file, "late")
    question = client.asked()
    assert "nobody answered in time" in client.answer(id).decode()
    withdrawn = json.loads(client.next("notifications/cancelled"))
    assert withdrawn["requestId"] == json.loads(question)["id"]
    client.accept(question)
    assert client.ask("ping") == b"{}"  # the answer has been read
    assert not file.exists()
    assert client.oracle.problems == []


@pytest.fixture(scope="module")
def crew(tmp_path_factory: pytest.TempPathFactory) -> Crew:
    gateway = {"expose": "all", "links": [example("approve")]}
    agents = {"quick": acp({"say": "done"})}
    return Crew(tmp_path_factory.mktemp("crew"), agents, gateway=gateway)


@pytest.fixture(scope="module")
def gateway(crew: Crew) -> Iterator[Gateway]:
    with Gateway(crew.home, crew.config) as running:
        yield running


@pytest.mark.soak
@pytest.mark.parametrize(
    ("ends", "over", "era"), pairs(["gone", "timed out"], ["http", "stdio"], ERAS)
)
async def test_a_delegation_that_nobody_approves_is_not_stored(
    crew: Crew, gateway: Gateway, over: str, era: str, ends: str
) -> None:
    modern = era == "modern"
    with ExitStack() as stack:
        client: Hesitant
        if over == "http":
            client = HesitatingWeb(gateway.port, modern=modern)
        else:
            words = serve_command(crew.home, crew.config, "--alone")
            client = HesitatingPipes(crew.home, words=words, modern=modern)
        stack.enter_context(client)
        if not modern:
            client.hello(ABLE)
        given = {"task_type": "code", "prompt": "do it", "agent_id": "quick"}
        id = client.request("tools/call", {"name": "delegate_task", "arguments": given})
        if modern:
            assert json.loads(client.result(id))["resultType"] == "input_required"
        else:
            client.asked()
        if ends == "gone":
            client.vanish(id)
        elif not modern:
            client.notify("notifications/cancelled", b'{"requestId":%s}' % id)
            client.next("notifications/cancelled")
            client.accept(client.asked())
    stored = await crew.tasks() if (crew.home / "state" / "tasks.db").exists() else []
    assert stored == []
    assert client.oracle.problems == []
