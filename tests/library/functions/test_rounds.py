"""Questions to the client: the same calls in both eras."""

import asyncio
import json
from typing import Any

import msgspec
import pytest

from portico import ROOTS, AskError, Context, Server, elicitation, sampling
from portico.core.model.session import Session
from portico.core.model.version import Version
from portico.library.functions.rounds import Rounds, Suspended
from tests.support.messages import error, modern, request, result

NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
ABLE: dict[str, Any] = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {"tools": {}},
    "roots": {},
}
ANA = {"action": "accept", "content": {"name": "Ana"}}


class Client:
    """A legacy client that answers every question."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers = answers
        self.asked: list[tuple[str, Any]] = []
        self.notified: list[dict[str, Any]] = []

    async def notify(self, message: bytes) -> None:
        self.notified.append(json.loads(message))

    async def ask(self, method: str, params: bytes) -> bytes:
        self.asked.append((method, json.loads(params)))
        answer = self.answers[method]
        if isinstance(answer, Exception):
            raise answer
        return msgspec.json.encode(answer)

    async def closed(self) -> None:
        await asyncio.Event().wait()


def legacy(client: Client, capabilities: dict[str, Any], version: Version) -> Context:
    session = Session(lambda message: None)
    session.version = version
    session.capabilities = capabilities
    return Context(session=session, peer=client)


@pytest.fixture
def server() -> Server:
    server = Server("t", state_key=b"k" * 32)

    @server.tool
    async def greet(context: Context) -> str:
        """Ask for a name."""
        answer = await context.elicit("Who are you?", NAME)
        return f"Hello {answer.content['name']}" if answer.accepted else f"So you {answer.action}"

    @server.tool
    def plainly(context: Context) -> str:
        """Ask from a plain function: the same call, without await."""
        answer: Any = context.elicit("Who are you?", NAME)
        return f"Hello {answer.content['name']}"

    @server.tool
    async def all_at_once(context: Context) -> str:
        """Ask three things in one round."""
        answers = await context.ask(
            {"n": elicitation("Who?", NAME), "s": sampling("Say hi"), "r": ROOTS}
        )
        return json.dumps(sorted(answers))

    @server.tool
    async def counted(context: Context) -> str:
        """Keep something over rounds."""
        context.state["runs"] = context.state.get("runs", 0) + 1
        await context.elicit("One?", NAME)
        await context.elicit("Two?", NAME)
        return str(context.state["runs"])

    @server.prompt
    async def letter(context: Context) -> str:
        """Ask before writing."""
        return f"Write to {(await context.roots())[0]['uri']}"

    @server.resource("note://x")
    async def note(context: Context) -> str:
        """Ask before reading."""
        return (await context.elicit("Sure?", NAME)).content["name"]  # type: ignore[no-any-return]

    return server


@pytest.mark.parametrize("tool", ["greet", "plainly"])
async def test_a_legacy_client_is_asked_by_a_request(server: Server, tool: str) -> None:
    client = Client({"elicitation/create": ANA})
    context = legacy(client, ABLE, Version.V2025_11_25)
    answer = await result(server, request("tools/call", {"name": tool}), context)
    assert answer["content"][0]["text"] == "Hello Ana"
    ((method, params),) = client.asked
    assert method == "elicitation/create"
    assert params == {"message": "Who are you?", "requestedSchema": NAME}


@pytest.mark.parametrize("tool", ["greet", "plainly"])
async def test_a_modern_client_is_asked_by_a_round(server: Server, tool: str) -> None:
    params = {"name": tool}
    first = await result(server, modern("tools/call", params, ABLE))
    assert first["resultType"] == "input_required"
    ((key, ask),) = first["inputRequests"].items()
    assert ask["method"] == "elicitation/create"
    assert ask["params"]["requestedSchema"] == NAME
    retry = {**params, "inputResponses": {key: ANA}, "requestState": first["requestState"]}
    second = await result(server, modern("tools/call", retry, ABLE, id=2))
    assert second["resultType"] == "complete"
    assert second["content"][0]["text"] == "Hello Ana"


@pytest.mark.parametrize("more", [{}, {"content": None}, {"content": {}}])
async def test_a_person_may_decline(server: Server, more: dict[str, Any]) -> None:
    client = Client({"elicitation/create": {"action": "decline", **more}})
    context = legacy(client, ABLE, Version.V2025_06_18)
    answer = await result(server, request("tools/call", {"name": "greet"}), context)
    assert answer["content"][0]["text"] == "So you decline"


async def test_several_questions_make_one_round(server: Server) -> None:
    first = await result(server, modern("tools/call", {"name": "all_at_once"}, ABLE))
    assert set(first["inputRequests"]) == {"n", "s", "r"}
    said = {"role": "assistant", "content": {"type": "text", "text": "hi"}, "model": "m"}
    answers: dict[str, Any] = {"n": ANA, "s": said}
    retry = {"name": "all_at_once", "requestState": first["requestState"]}
    second = await result(server, modern("tools/call", {**retry, "inputResponses": answers}, ABLE))
    assert set(second["inputRequests"]) == {"r"}, "only what is still open is asked again"
    last = {"name": "all_at_once", "requestState": second["requestState"]}
    answers = {"r": {"roots": []}, "unasked": 5}
    third = await result(server, modern("tools/call", {**last, "inputResponses": answers}, ABLE))
    assert third["content"][0]["text"] == '["n", "r", "s"]'


async def test_state_travels_with_the_rounds_and_the_handler_runs_again(server: Server) -> None:
    params: dict[str, Any] = {"name": "counted"}
    for _ in range(2):
        asked = await result(server, modern("tools/call", params, ABLE))
        (key,) = asked["inputRequests"]
        params = {
            "name": "counted",
            "inputResponses": {key: ANA},
            "requestState": asked["requestState"],
        }
    done = await result(server, modern("tools/call", params, ABLE))
    assert done["content"][0]["text"] == "3"


async def test_prompts_and_resources_ask_too(server: Server) -> None:
    asked = await result(server, modern("prompts/get", {"name": "letter"}, ABLE))
    (key,) = asked["inputRequests"]
    retry: dict[str, Any] = {"name": "letter", "requestState": asked["requestState"]}
    retry["inputResponses"] = {key: {"roots": [{"uri": "file:///a"}]}}
    done = await result(server, modern("prompts/get", retry, ABLE))
    assert done["messages"][0]["content"]["text"] == "Write to file:///a"
    asked = await result(server, modern("resources/read", {"uri": "note://x"}, ABLE))
    assert asked["resultType"] == "input_required"
    assert "ttlMs" not in asked


async def asked_state(server: Server, principal: str = "ana") -> str:
    params = {"name": "greet"}
    first = await result(server, modern("tools/call", params, ABLE), Context(principal=principal))
    state: str = first["requestState"]
    return state


@pytest.mark.parametrize(
    ("change", "principal", "params"),
    [
        (lambda state: state[:-2] + "AA", "ana", {"name": "greet"}),
        (lambda state: "AAAA" + state[4:], "ana", {"name": "greet"}),
        (lambda state: "nonsense", "ana", {"name": "greet"}),
        (lambda state: "", "ana", {"name": "greet"}),
        (lambda state: 5, "ana", {"name": "greet"}),
        (lambda state: state, "bob", {"name": "greet"}),
        (lambda state: state, "ana", {"name": "counted"}),
        (lambda state: state, "ana", {"name": "greet", "arguments": {"other": 1}}),
    ],
)
async def test_a_state_that_was_changed_or_is_not_the_askers_is_refused(
    server: Server, change: Any, principal: str, params: dict[str, Any]
) -> None:
    state = change(await asked_state(server))
    params = {**params, "requestState": state, "inputResponses": {"elicitation-1": ANA}}
    if "arguments" in params:
        server.remove_tool("greet")
        server.add_tool({"name": "greet", "inputSchema": {"type": "object"}}, lambda a: "ran")
    refused = await error(server, modern("tools/call", params, ABLE), Context(principal=principal))
    assert refused["code"] == -32602
    assert "requestState" in refused["message"]


async def test_a_state_expires() -> None:
    now = [1000.0]
    rounds = Rounds(b"k" * 32, clock=lambda: now[0], ttl_s=60)
    from portico.core.model.errors import InvalidParams
    from portico.core.model.message import Request
    from portico.library.functions.rounds import ReplayAsker, Suspended

    asked = Request(method="tools/call", id=b"1", params=b'{"name":"x"}', version=list(Version)[-1])
    context, replay = await rounds.begin(asked, Context())
    assert isinstance(replay, ReplayAsker)
    result = await rounds.suspend(asked, context, replay, Suspended({}))
    state = result["requestState"]
    params = json.dumps({"name": "x", "requestState": state}).encode()
    retry = Request(method="tools/call", id=b"2", params=params, version=list(Version)[-1])
    await rounds.begin(retry, Context())
    now[0] += 61
    with pytest.raises(InvalidParams, match="expired"):
        await rounds.begin(retry, Context())


@pytest.mark.parametrize(
    "answer", [5, "accept", {}, {"action": "maybe"}, {"action": "accept", "content": []}]
)
async def test_a_malformed_answer_is_invalid_params(server: Server, answer: Any) -> None:
    state = await asked_state(server, "local")
    params = {"name": "greet", "requestState": state, "inputResponses": {"elicitation-1": answer}}
    assert (await error(server, modern("tools/call", params, ABLE)))["code"] == -32602
    bad = {"name": "greet", "inputResponses": [1]}
    assert (await error(server, modern("tools/call", bad, ABLE)))["code"] == -32602


async def test_an_answer_that_does_not_fill_in_the_form_is_asked_for_again(server: Server) -> None:
    state = await asked_state(server, "local")
    partial = {"action": "accept", "content": {"nickname": "A"}}
    params = {"name": "greet", "requestState": state, "inputResponses": {"elicitation-1": partial}}
    again = await result(server, modern("tools/call", params, ABLE))
    assert again["resultType"] == "input_required"


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_form_that_is_none_is_not_put_to_a_person(era: str) -> None:
    server = Server("t")

    @server.tool
    async def ask(context: Context) -> str:
        wrong = {"type": "object", "properties": {"n": {"type": "integr"}}}
        return (await context.elicit("How many?", wrong)).action

    client = Client({"elicitation/create": ANA})
    if era == "modern":
        answer = await result(server, modern("tools/call", {"name": "ask"}, ABLE))
    else:
        context = legacy(client, ABLE, Version.V2025_11_25)
        answer = await result(server, request("tools/call", {"name": "ask"}), context)
    words = 'the form: properties.n.type: "integr" is not a JSON Schema type'
    assert words in answer["content"][0]["text"]
    assert client.asked == []


async def test_a_client_is_never_asked_for_what_it_did_not_declare(server: Server) -> None:
    refused = await error(server, modern("tools/call", {"name": "greet"}, {"sampling": {}}))
    assert refused["code"] == -32021
    assert refused["data"] == {"requiredCapabilities": {"elicitation": {}}}
    client = Client({})
    context = legacy(client, {"sampling": {}}, Version.V2025_11_25)
    answer = await result(server, request("tools/call", {"name": "greet"}), context)
    assert answer["isError"]
    assert "elicitation" in answer["content"][0]["text"]
    assert client.asked == []


async def test_a_client_that_refuses_fails_only_the_call(server: Server) -> None:
    client = Client({"elicitation/create": AskError("not now", -1)})
    context = legacy(client, ABLE, Version.V2025_11_25)
    answer = await result(server, request("tools/call", {"name": "greet"}), context)
    assert answer["isError"]
    assert "not now" in answer["content"][0]["text"]


async def test_a_page_to_visit_has_an_id_only_where_the_version_wants_one() -> None:
    server = Server("t")

    @server.tool
    async def login(context: Context) -> str:
        return (await context.elicit_url("Log in", "https://example.com/login")).action

    client = Client({"elicitation/create": {"action": "accept"}})
    context = legacy(client, ABLE, Version.V2025_11_25)
    await result(server, request("tools/call", {"name": "login"}), context)
    ((_, params),) = client.asked
    assert params["mode"] == "url"
    assert params["elicitationId"]
    asked = await result(server, modern("tools/call", {"name": "login"}, ABLE))
    ((_, ask),) = asked["inputRequests"].items()
    assert "elicitationId" not in ask["params"]
    only_forms: dict[str, Any] = {"elicitation": {}}
    refused = await error(server, modern("tools/call", {"name": "login"}, only_forms))
    assert refused["code"] == -32021


async def test_a_completion_may_not_ask_in_the_modern_era() -> None:
    server = Server("t")
    server.prompt(lambda word="": "x", name="p")

    @server.completion("p", "word")
    async def nosy(value: str, known: dict[str, str], context: Context) -> list[str]:
        await context.elicit("Who?", NAME)
        return []

    params = {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "word", "value": ""}}
    refused = await error(server, modern("completion/complete", params, ABLE))
    assert refused["code"] == -32603


@pytest.mark.parametrize("answer", [{"action": "accept", "content": {}}, {"action": "yes"}, {}])
async def test_a_legacy_answer_that_is_none_fails_the_call(server: Server, answer: Any) -> None:
    context = legacy(Client({"elicitation/create": answer}), ABLE, Version.V2025_11_25)
    done = await result(server, request("tools/call", {"name": "greet"}), context)
    assert done["isError"]


async def test_codes_of_the_modern_era_never_reach_a_legacy_client(server: Server) -> None:
    context = legacy(Client({}), {}, Version.V2025_11_25)
    refused = await error(server, request("prompts/get", {"name": "letter"}), context)
    assert refused["code"] == -32603


async def test_a_refusal_takes_back_the_questions_beside_it(server: Server) -> None:
    taken_back: list[str] = []

    class Busy(Client):
        """Refuses to sample, and thinks about everything else for ever."""

        async def ask(self, method: str, params: bytes) -> bytes:
            if method == "sampling/createMessage":
                raise AskError("not now")
            try:
                await asyncio.Event().wait()
            finally:
                taken_back.append(method)
            return b""

    able: dict[str, Any] = {"elicitation": {}, "sampling": {}, "roots": {}}
    context = legacy(Busy({}), able, Version.V2025_11_25)
    answer = await result(server, request("tools/call", {"name": "all_at_once"}), context)
    assert "not now" in answer["content"][0]["text"]
    assert sorted(taken_back) == ["elicitation/create", "roots/list"]


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_who_asks_nothing_is_answered_nothing(era: str) -> None:
    server = Server("t")

    @server.tool
    async def nothing(context: Context) -> str:
        """Ask no question at all."""
        return json.dumps(await context.ask({}))

    asked = request if era == "legacy" else modern
    context = legacy(Client({}), {}, Version.V2025_11_25) if era == "legacy" else None
    answer = await result(server, asked("tools/call", {"name": "nothing"}), context)
    assert answer["content"][0]["text"] == "{}"


async def test_questions_of_a_task_group_make_one_round() -> None:
    server = Server("t")

    @server.tool
    async def grouped(context: Context) -> str:
        """Ask two people at once."""
        async with asyncio.TaskGroup() as group:
            one = group.create_task(context.elicit("Who?", NAME, key="one"))
            two = group.create_task(context.elicit("And who?", NAME, key="two"))
        return f"{one.result().content['name']} and {two.result().content['name']}"

    params = {"name": "grouped"}
    asked = await result(server, modern("tools/call", params, ABLE))
    assert list(asked["inputRequests"]) == ["one", "two"]
    more = {
        "requestState": asked["requestState"],
        "inputResponses": {
            "one": {"action": "accept", "content": {"name": "Ana"}},
            "two": {"action": "accept", "content": {"name": "Bo"}},
        },
    }
    answer = await result(server, modern("tools/call", {**params, **more}, ABLE))
    assert answer["content"][0]["text"] == "Ana and Bo"


async def test_a_failure_beside_a_question_is_a_failure() -> None:
    server = Server("t")

    @server.tool
    async def failing(context: Context) -> str:
        """Fail and ask in one group."""
        raise BaseExceptionGroup("both", [Suspended({}), ValueError("no")])

    assert (await result(server, modern("tools/call", {"name": "failing"}, ABLE)))["isError"]


async def test_state_that_has_no_json_form_is_named() -> None:
    server = Server("t")

    @server.tool
    async def odd(context: Context) -> str:
        """Keep what cannot be kept."""
        context.state["file"] = object()
        return (await context.elicit("Who?", NAME)).action

    answer = await result(server, modern("tools/call", {"name": "odd"}, ABLE))
    assert answer["isError"]
    assert "context.state has no JSON form" in answer["content"][0]["text"]


async def test_a_form_without_fields_asks_for_no_more_than_a_yes() -> None:
    server = Server("t")

    @server.tool
    async def sure(context: Context) -> str:
        """Ask whether to go on."""
        return (await context.elicit("Sure?", {})).action

    asked = await result(server, modern("tools/call", {"name": "sure"}, ABLE))
    (question,) = asked["inputRequests"].values()
    assert question["params"]["requestedSchema"] == {"type": "object", "properties": {}}


async def test_a_plain_function_may_set_its_state_as_a_whole() -> None:
    server = Server("t")

    @server.tool
    def counted(context: Context) -> str:
        """Count the runs."""
        context.state = {"runs": context.state.get("runs", 0) + 1}
        answer: Any = context.elicit("Sure?", {}, key="sure")
        return f"{answer.action} after {context.state['runs']}"

    params = {"name": "counted"}
    asked = await result(server, modern("tools/call", params, ABLE))
    more = {"requestState": asked["requestState"], "inputResponses": {"sure": {"action": "accept"}}}
    answer = await result(server, modern("tools/call", {**params, **more}, ABLE))
    assert answer["content"][0]["text"] == "accept after 2"
