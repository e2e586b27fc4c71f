"""Questions of tasks stay open until a client or a person answers them."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from portico import Context, InvalidParams, Server
from portico.core.model.context import LOCAL, Ask
from portico.core.model.message import Request, Response
from portico.core.protocol.codec import encode
from portico.library.functions.rounds import check_answer
from portico.library.tasks.mcp.promotion import PromotableCall, Run
from portico.library.tasks.mcp.task_changes import task_changes
from portico.library.tasks.mcp.task_host import TaskHost
from portico.library.tasks.mcp.task_wire import outcome_of, result_of
from portico.library.tasks.store.record import TaskLimits, TaskRecord
from portico.library.tasks.store.store import tasks_in_memory
from portico.library.tasks.worker.work import RunOutcome
from portico.library.tasks.worker.worker import TaskWorker
from tests.rigs.wire import raw_member
from tests.serve.gateway import Gateway, command, written
from tests.support.messages import modern, request
from tests.support.running import WAIT_S
from tests.tasks_protocol.doors import ERAS, Doors, tasks_server
from tests.tasks_protocol.follower import ABLE, ACCEPT, FollowingWeb

DECLINE = {"action": "decline"}
CONFIRM = {"type": "object", "properties": {"confirm": {"type": "boolean"}}}
ELICIT = "elicitation/create"
real = pytest.mark.xdist_group("tasks-doors")


class Silent(FollowingWeb):
    """A client that never answers a question."""

    def send(self, raw: bytes) -> None:
        """Send requests and notifications only."""
        if raw_member(raw, "method") is not None:
            super().send(raw)


def silent(doors: Doors, door: str, server: str, able: dict[str, Any] = ABLE) -> Silent:
    """A silent legacy client of a door."""
    client = Silent(doors.port(door, server))
    client.prefix = f"{server}__" if door == "merged" else ""
    client.hello(able)
    return client


WAYS = [("merged", "legacy"), ("merged", "modern"), ("wrap", "modern")]
ways = pytest.mark.parametrize(("door", "server"), WAYS)


@pytest.mark.slow
@real
@ways
def test_a_question_stays_open_when_the_client_that_has_it_leaves(
    doors: Doors, door: str, server: str
) -> None:
    with silent(doors, door, server) as leaver:
        id = leaver.begin("confirm_delete", filename="x")
        leaver.request("tasks/result", {"taskId": id})
        leaver.next(ELICIT)
    with doors.visitor(door, "legacy", server) as other:
        assert other.task(id)["status"] == "input_required"
        assert other.outcome(id)["result"]["content"][0]["text"] == "deleted x"
        assert other.oracle.problems == leaver.oracle.problems == []


@pytest.mark.slow
@real
@ways
def test_a_client_that_cannot_answer_is_not_asked_and_waits_for_the_result(
    doors: Doors, door: str, server: str
) -> None:
    with (
        doors.visitor(door, "legacy", server) as able,
        silent(doors, door, server, {}) as unable,
    ):
        id = able.begin("confirm_delete", filename="x")
        able.reached(id, "input_required")
        waiting = unable.request("tasks/result", {"taskId": id})
        assert unable.task(id)["status"] == "input_required"
        assert able.outcome(id)["result"]["content"][0]["text"] == "deleted x"
        assert b"deleted x" in unable.answer(waiting)
        assert unable.heard(ELICIT) == []


@pytest.mark.slow
@real
def test_the_error_of_a_client_is_its_answer_to_a_form(doors: Doors) -> None:
    with FollowingWeb(doors.port("merged", "modern")) as client:
        client.prefix = "modern__"
        client.hello(ABLE)
        id = client.begin("confirm_delete", filename="x")
        assert client.outcome(id)["result"]["content"][0]["text"] == "kept x"


# Calls that become tasks while the client has a question.


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    home = tmp_path_factory.mktemp("open-questions")
    servers = {era: command(tasks_server(), era=era) for era in ERAS}
    tables = {"gateway": {"expose": "all", "sync_budget_s": 1.5}}
    with Gateway(home, written(home / "portico.toml", servers, **tables)) as ready:
        yield ready


@pytest.mark.slow
@real
@pytest.mark.parametrize("server", ERAS)
def test_a_call_that_becomes_a_task_takes_its_open_question_along(
    gateway: Gateway, server: str
) -> None:
    with (
        FollowingWeb(gateway.port, modern=True) as person,
        Silent(gateway.port) as client,
    ):
        client.hello({"elicitation": {}})
        # Its own process of the server runs from now on: the question comes within the budget.
        client.fetch("tools/call", {"name": f"{server}__pid", "arguments": {}})
        given = {"name": f"{server}__wait_and_ask", "arguments": {"seconds": 0}}
        promoted = client.fetch("tools/call", given)["result"]
        id = promoted["structuredContent"]["task_id"]
        (asked,) = [raw for raw in client.told if ELICIT.encode() in raw]
        withdrawn = json.loads(client.next("notifications/cancelled"))
        assert withdrawn["requestId"] == json.loads(asked)["id"]
        (key,) = person.questions(id, 1)
        client.leave()
        person.update(id, {key: ACCEPT})
        assert person.outcome(id)["result"]["content"][0]["text"] == "answered accept"
        assert person.oracle.problems == client.oracle.problems == []


class Desk:
    """A legacy client in memory, with one question at a time."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.is_withdrawn = False

    async def notify(self, message: bytes) -> None:
        """Ignore notifications."""

    async def ask(self, method: str, params: bytes) -> bytes:
        """Show a question until it is answered or withdrawn."""
        self.asked.set()
        try:
            return await self.answer
        except asyncio.CancelledError:
            self.is_withdrawn = True
            raise

    async def closed(self) -> None:
        """Stay."""
        await asyncio.get_running_loop().create_future()


@pytest.mark.parametrize("is_first", [True, False])
async def test_an_answer_counts_if_it_arrives_before_the_call_is_a_task(is_first: bool) -> None:
    desk, worker = Desk(), TaskWorker(tasks_in_memory)
    kind, store = TaskHost(worker).call_kind, worker.store

    async def handler(request: Request, context: Context) -> Response:
        assert context.peer is not None
        return Response(id=request.id, result=await context.peer.ask(ELICIT, b'{"message":"?"}'))

    class Call(PromotableCall):
        async def adopt(self, run: Run) -> TaskRecord:
            return await worker.adopt(LOCAL, kind, b"{}", run)

        def answer(self, task: TaskRecord) -> Response:
            return Response(id=b"1", result=encode(task.id))

        def outcome(self, response: Response) -> RunOutcome:
            return outcome_of(response, modern=False)

    call = Call(handler, Request(method="tools/call", id=b"1"), Context(peer=desk))
    async with asyncio.timeout(WAIT_S):
        running = asyncio.ensure_future(call.run())
        await desk.asked.wait()
        if is_first:
            desk.answer.set_result(encode(DECLINE))
        await call.begin()
        await running
        task = call.record
        assert task is not None
        assert desk.is_withdrawn is not is_first
        async with task_changes(store, LOCAL, task.id) as changes:
            async for task in changes:
                given = {question.key: encode(ACCEPT) for question in task.pending}
                await store.answer(LOCAL, task.id, given)
        answer = result_of(await store.result(task))
        assert json.loads(answer) == (DECLINE if is_first else ACCEPT)
        await worker.close()


# Answers.


class Answerer:
    """A modern client of a server with one task that asks."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.id = ""
        self.key = ""

    async def fetch(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a request; the whole answer."""
        answer: dict[str, Any] = (await self._server.handle(modern(method, params, ABLE))).decode()
        return answer

    async def begin(self) -> None:
        """Begin the task, and wait for its question."""
        made = await self.fetch("tools/call", name="ask", arguments={})
        self.id = made["result"]["taskId"]
        found: dict[str, Any] = {}
        while not found:
            await asyncio.sleep(0)
            found = (await self.fetch("tasks/get", taskId=self.id))["result"].get(
                "inputRequests", {}
            )
        (self.key,) = found

    async def update(self, answers: dict[str, Any]) -> dict[str, Any]:
        """Answer questions; the whole answer."""
        return await self.fetch("tasks/update", taskId=self.id, inputResponses=answers)

    async def ended(self) -> str:
        """Wait for the end of the task; the text of its result."""
        about = request("tasks/result", {"taskId": self.id})
        ended = await self._server.handle(about, Context(version="2025-11-25"))
        return str(ended.decode()["result"]["content"][0]["text"])


@asynccontextmanager
async def answerer(params: dict[str, Any], max_question: int = 1000) -> AsyncIterator[Answerer]:
    server = Server("s", "1", tasks=tasks_in_memory(TaskLimits(max_question=max_question)))

    @server.tool(task=True)
    async def ask(context: Context) -> str:
        form = Ask(ELICIT, {"message": "Go on?", **params}, "elicitation", "form")
        return str((await context.ask({"only": form}))["only"]["action"])

    async with server.running(), asyncio.timeout(WAIT_S):
        client = Answerer(server)
        await client.begin()
        yield client


async def test_a_form_without_a_schema_can_be_answered() -> None:
    async with answerer({}) as client:
        wrong = await client.update({client.key: {"action": "perhaps"}})
        assert wrong["error"]["code"] == -32602
        assert "result" in await client.update({client.key: {"action": "accept", "content": {}}})
        assert await client.ended() == "accept"


BROKEN = [{}, {"requestedSchema": 5}, {"requestedSchema": {"type": "nonsense"}}]


@pytest.mark.parametrize("params", BROKEN, ids=str)
def test_every_answer_matches_a_form_whose_schema_is_missing_or_invalid(
    params: dict[str, Any],
) -> None:
    question = encode({"method": ELICIT, "params": params})
    check_answer(question, encode(ACCEPT))
    with pytest.raises(InvalidParams):
        check_answer(question, b'{"action":"perhaps"}')


async def test_a_long_answer_is_refused_by_its_limit_only_if_its_question_is_open() -> None:
    async with answerer({"requestedSchema": CONFIRM}) as client:
        long = {"action": "accept", "content": {"more": "x" * 1000}}
        assert "result" in await client.update({"unknown": long})
        error = (await client.update({client.key: long, "unknown": long}))["error"]
        assert error["code"] == -32602
        assert error["message"] == "an answer exceeds the limit of 1000 bytes; send less"
        assert "result" in await client.update({client.key: ACCEPT, "unknown": long})
        assert await client.ended() == "accept"
