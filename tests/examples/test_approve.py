"""The example that asks for approval, before every kind of server and at every endpoint."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.agents.delegation.delegations import Crew, Person, acp, data, delegate, over_http, words
from tests.examples.served import example
from tests.serve.gateway import Gateway
from tests.support.running import APPROVING
from tests.tasks_protocol.doors import ERAS, LIBRARY_WAYS, LibraryDoors
from tests.tasks_protocol.doors import WAYS as DOOR_WAYS
from tests.tasks_protocol.follower import ABLE, ACCEPT, Follower, FollowingWeb

pytestmark = [pytest.mark.slow, pytest.mark.soak, pytest.mark.xdist_group("approve")]

WAYS = [*DOOR_WAYS, *LIBRARY_WAYS]
EACH_WAY = pytest.mark.parametrize("client", WAYS, indirect=True, ids="-".join)


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LibraryDoors]:
    with LibraryDoors(tmp_path_factory.mktemp("approve"), APPROVING) as ready:
        yield ready


@pytest.fixture
def client(request: pytest.FixtureRequest, doors: LibraryDoors) -> Iterator[Follower]:
    """A client of each way."""
    found = doors.client(*request.param)
    yield found
    assert found.oracle.problems == []


def answered(client: Follower, tool: str, *answers: Any, **arguments: Any) -> tuple[Any, list[str]]:
    """The whole answer to a plain call, and the questions that led to it."""
    asked = [json.loads(one)["message"] for one in client.heard("elicitation/create")]
    params, left = client.call_of(tool, arguments), list(answers)
    answer = client.fetch("tools/call", params)
    if not client.modern:  # it has answered by itself
        heard = [json.loads(one)["message"] for one in client.heard("elicitation/create")]
        return answer, heard[len(asked) :]
    questions: list[str] = []
    while answer.get("result", {}).get("resultType") == "input_required":
        result = answer["result"]
        (key,) = result["inputRequests"]
        questions.append(result["inputRequests"][key]["params"]["message"])
        given = {"inputResponses": {key: left.pop(0) if left else ACCEPT}}
        answer = client.fetch(
            "tools/call", {**params, **given, "requestState": result["requestState"]}
        )
    return answer, questions


def text(answer: Any) -> str:
    found: str = answer["result"]["content"][0]["text"]
    return found


@EACH_WAY
def test_a_call_is_made_once_a_person_has_approved_it(client: Follower) -> None:
    answer, asked = answered(client, "greet", name="Ana")
    assert text(answer) == "Hello, Ana!"
    (question,) = asked
    assert question.startswith("[Approve] Call ")
    assert 'greet with {"name": "Ana"}?' in question


@EACH_WAY
def test_an_approval_comes_before_the_questions_of_the_server(client: Follower) -> None:
    client.able, able = {"elicitation": {"form": {}}}, client.able
    try:
        answer, asked = answered(client, "ask_twice", label=str(id(client)))
    finally:
        client.able = able
    assert text(answer).startswith("accept accept")
    assert len(asked) == 3
    assert asked[0].startswith("[Approve] Call ")
    assert [one.rpartition(" ")[2] for one in asked[1:]] == ["First?", "Second?"]


def visitor(doors: LibraryDoors, way: tuple[str, str, str], answer: Any, able: Any) -> Follower:
    """A new client over HTTP with these answers and capabilities."""
    door, era, server = way
    port = doors.port(door, server)
    path = f"/servers/{server}/mcp" if door == "server" else "/mcp"
    answers = {"elicitation/create": answer}
    made = FollowingWeb(port, path, answers=answers, modern=era == "modern")
    client: Follower = doors.stack.enter_context(made)
    client.able, client.executes = able, door == "executed"
    client.prefix = f"{server}__" if door in ("merged", "executed") else ""
    if not client.modern:
        client.hello(able)
    return client


EACH_WEB = pytest.mark.parametrize("way", [way for way in WAYS if "-" not in way[0]], ids="-".join)


@EACH_WEB
def test_a_client_that_cannot_ask_is_refused(doors: LibraryDoors, way: Any) -> None:
    client = visitor(doors, way, ACCEPT, {})
    answer, asked = answered(client, "greet", name="Ana")
    assert "requires the elicitation capability" in json.dumps(answer)
    assert asked == []


@EACH_WEB
@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_a_call_that_a_person_declines_is_not_made(
    doors: LibraryDoors, way: Any, action: str
) -> None:
    client = visitor(doors, way, {"action": action}, ABLE)
    answer, asked = answered(client, "greet", {"action": action}, name="Ana")
    assert "a person did not approve it" in json.dumps(answer)
    assert len(asked) == 1


@pytest.mark.parametrize("client", LIBRARY_WAYS, indirect=True, ids="-".join)
def test_in_a_task_the_approval_waits(client: Follower) -> None:
    id = client.begin("slow_compute", seconds=0, label="x")
    if client.modern:
        (key,) = client.questions(id, 1)
        client.update(id, {key: ACCEPT})
    assert client.outcome(id)["result"]["content"][0]["text"] == "computed x in 0.0 s"


@pytest.fixture(scope="module")
def crew(tmp_path_factory: pytest.TempPathFactory) -> Crew:
    agents = {"quick": acp({"say": "done"})}
    gateway = {"expose": "all", "links": [example("approve")]}
    return Crew(tmp_path_factory.mktemp("crew"), agents, gateway=gateway)


@pytest.fixture(scope="module")
def gateway(crew: Crew) -> Iterator[Gateway]:
    with Gateway(crew.home, crew.config) as running:
        yield running


@pytest.mark.parametrize("era", ERAS)
async def test_a_delegation_is_approved_before_it_is_stored(
    crew: Crew, gateway: Gateway, era: str
) -> None:
    before = len(await crew.tasks()) if (crew.home / "state" / "tasks.db").exists() else 0
    nobody, person = Person(action="decline"), Person()
    async with over_http(gateway.port, era, elicitation_callback=nobody) as client:
        with pytest.raises(Exception, match="a person did not approve it"):
            await delegate(client, "quick")
    assert (len(await crew.tasks()) if (crew.home / "state" / "tasks.db").exists() else 0) == before
    async with over_http(gateway.port, era, elicitation_callback=person) as client:
        assert words(await delegate(client, "quick")) == "done"
    assert "[approve] Call delegate_task with" in person.asked[0].message
    assert len(person.asked) == len(nobody.asked) == 1


@pytest.mark.parametrize("era", ERAS)
async def test_the_result_of_an_approved_delegation_in_the_background_is_shown(
    gateway: Gateway, era: str
) -> None:
    person = Person()
    async with over_http(gateway.port, era, elicitation_callback=person) as client:
        begun = data(await delegate(client, "quick", background=True))
        about = {"task_id": begun["task_id"], "wait_s": 50}
        assert words(await client.call_tool("agent_status", about)) == "done"
    assert [one.message.split(" with ")[0] for one in person.asked] == [
        "[approve] Call delegate_task",
        "[approve] Call agent_status",
    ]
