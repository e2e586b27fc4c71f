"""The endpoint of a task's agent, and the grants behind it, without processes."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from portico import Context, Server
from portico.agents.delegation.agent_access import AgentAccess, TaskGrant
from portico.agents.delegation.granted_endpoint import DELEGATION_TOOLS, GrantedEndpoint
from portico.agents.delegation.stored_delegation import StoredDelegation
from portico.core.config.agents_schema import AgentEntry
from portico.core.model.message import Meta, Request, Response
from portico.core.model.session import Session
from portico.core.model.types import Endpoint
from portico.core.model.version import Version
from portico.library.tasks.store.record import TaskLimits
from portico.library.tasks.store.store import TaskStore, tasks_in_memory
from portico.library.tasks.worker.work import Work

MODERN = Version.V2026_07_28
RESERVED = ("execute_tool", "search_tools")


def desk() -> Server:
    """A server with two tools and a resource."""
    server = Server("desk")

    @server.tool
    def who(context: Context) -> str:
        return context.principal

    @server.tool
    def secret() -> str:
        return "the secret"

    @server.resource("desk://paper")
    def paper() -> str:
        return "the paper"

    return server


def endpoint_for(*tools: str, delegates: bool = False) -> GrantedEndpoint:
    """The endpoint of an agent that may call these tools."""
    return GrantedEndpoint(
        desk().endpoint(), "task:one", tools, delegates=delegates, reserved=RESERVED
    )


async def answered(
    endpoint: Endpoint, method: str, params: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The answer to a modern request."""
    given = params or {}
    request = Request(
        method=method,
        id=b"1",
        params=msgspec.json.encode(given),
        version=MODERN,
        name=str(given.get("name", "")),
        uri=str(given.get("uri", "")),
    )
    response = await endpoint.handle(request, Context())
    assert isinstance(response, Response)
    return response.decode()


async def test_a_modern_agent_lists_and_calls_only_its_tools() -> None:
    endpoint = endpoint_for("w*")
    listed = await answered(endpoint, "tools/list")
    assert [tool["name"] for tool in listed["result"]["tools"]] == ["who"]
    called = await answered(endpoint, "tools/call", {"name": "who", "arguments": {}})
    assert called["result"]["content"][0]["text"] == "task:one"
    for name in ("secret", *RESERVED, *DELEGATION_TOOLS):
        refused = await answered(endpoint, "tools/call", {"name": name, "arguments": {}})
        assert "error" in refused


async def test_a_modern_agent_discovers_no_resources() -> None:
    endpoint = endpoint_for("*")
    found = await answered(endpoint, "server/discover")
    assert "tools" in found["result"]["capabilities"]
    assert {"resources", "prompts", "completions"}.isdisjoint(found["result"]["capabilities"])
    refused = await answered(endpoint, "resources/read", {"uri": "desk://paper"})
    assert refused["error"]["message"] == "method not found: resources/read"


async def test_a_listener_follows_no_resources() -> None:
    seen: list[Request] = []

    class Kept:
        def handle(self, request: Request, context: Context) -> Response:
            seen.append(request)
            return Response(id=request.id, result=b"{}")

    endpoint = GrantedEndpoint(Kept(), "task:one", ["*"], delegates=False)
    wanted = {"toolsListChanged": True, "resourceSubscriptions": ["desk://paper"], "taskIds": ["t"]}
    await answered(endpoint, "subscriptions/listen", {"notifications": wanted, "_meta": {"a": 1}})
    followed = json.loads(seen[0].params)
    assert followed["notifications"] == {"toolsListChanged": True, "taskIds": ["t"]}
    assert followed["_meta"] == {"a": 1}


async def test_an_agent_answers_no_question_that_is_meant_for_a_person() -> None:
    seen: list[Any] = []

    class Kept:
        def handle(self, request: Request, context: Context) -> Response:
            context.request = request  # as the core does
            seen.append(context.client_capabilities)
            return Response(id=request.id, result=b"{}")

    endpoint = GrantedEndpoint(Kept(), "task:one", ["*"], delegates=True)
    legacy, modern = Session(lambda _: None), b'{"elicitation":{"form":{}},"sampling":{}}'
    escaped = modern.replace(b"elicit", rb"\u0065licit")
    twice = escaped.replace(b'"sampling"', b'"elicitation":{},"sampling"')
    legacy.capabilities = {"elicitation": {}, "sampling": {}}
    for version, session, meta in (
        (Version.V2025_11_25, legacy, Meta()),
        (MODERN, None, Meta(client_capabilities=modern)),
        (MODERN, None, Meta(client_capabilities=escaped)),
        (MODERN, None, Meta(client_capabilities=twice)),
    ):
        request = Request(method="tools/call", id=b"1", params=b"{}", version=version, meta=meta)
        request.name = "agent_status"
        await endpoint.handle(request, Context(session=session))
    assert seen == [{"sampling": {}}] * 4
    answers = {"taskId": "ptk_x", "inputResponses": {"key": {"action": "accept"}}}
    refused = await answered(endpoint, "tasks/update", answers)
    assert refused["error"]["message"].startswith("only a person answers such questions")


async def test_nothing_is_answered_after_the_end() -> None:
    endpoint = endpoint_for("*")
    ends: list[str] = []
    endpoint.on_end(lambda: ends.append("early"))
    endpoint.end()
    endpoint.end()
    endpoint.on_end(lambda: ends.append("late"))
    assert ends == ["early", "late"]
    for method in ("ping", "tools/list", "tools/call", "tasks/get", "initialize"):
        refused = await answered(endpoint, method, {"name": "who", "arguments": {}})
        assert "the task has ended" in refused["error"]["message"]


@given(tools=st.lists(st.text(max_size=8) | st.just("*")), name=st.sampled_from(sorted(RESERVED)))
def test_no_pattern_covers_a_reserved_tool(tools: list[str], name: str) -> None:
    class Nothing:
        def handle(self, request: Request, context: Context) -> Response:
            raise AssertionError("nothing is called")

    for delegates in (False, True):
        patterns = [*tools, name, *DELEGATION_TOOLS]
        endpoint = GrantedEndpoint(
            Nothing(), "task:one", patterns, delegates=delegates, reserved=RESERVED
        )
        assert not endpoint.allows(name)
        assert {endpoint.allows(tool) for tool in DELEGATION_TOOLS} == {delegates}


# Grants.


class Places:
    """A gateway with a URL and a control socket."""

    def __init__(self, url: str = "http://127.0.0.1:1/mcp", path: str = "/run/1.sock") -> None:
        self.url = url
        self.control_socket = path
        self.asked_for: list[str] = []

    def full_endpoint(self, folder: str) -> Endpoint:
        self.asked_for.append(folder)
        return desk().endpoint()


async def working(store: TaskStore, principal: str = "local") -> Work:
    """A task that runs here."""
    task = await store.submit(principal, "delegate", b"{}")
    claimed = await store.claim("here", ["delegate"])
    assert claimed is not None
    assert claimed.id == task.id
    return Work(store, claimed, b"{}")


async def granted(access: AgentAccess, work: Work, entry: AgentEntry, **about: Any) -> TaskGrant:
    """The grant for a delegation."""
    stored = StoredDelegation(task_type="code", prompt="x", cwd="/", **about)
    return await access.grant(work, entry, stored, "/work")


def agent(**keys: Any) -> AgentEntry:
    return AgentEntry(id="a", command="x", **keys)


def token_of(grant: TaskGrant) -> str:
    assert grant.server is not None
    return grant.server.headers["Authorization"].removeprefix("Bearer ")


async def test_a_token_finds_its_own_task_until_the_end() -> None:
    store = tasks_in_memory()
    access = AgentAccess(Places(), lambda: store)
    first = await granted(access, await working(store), agent(tools=("*",)))
    second = await granted(access, await working(store), agent(tools=("*",)))
    assert access.find(token_of(first)) is first.endpoint
    assert access.find(token_of(second)) is second.endpoint
    for stranger in ("", "portico-task-", token_of(first)[:-1], "ü", "\udcff"):
        assert access.find(stranger) is None
    await first.end()
    assert access.find(token_of(first)) is None
    assert access.find(token_of(second)) is second.endpoint
    await store.close()


async def test_an_agent_has_the_servers_of_the_folder_of_its_task_until_it_ends() -> None:
    store, places = tasks_in_memory(), Places()
    access = AgentAccess(places, lambda: store)
    made = await granted(access, await working(store), agent(tools=("*",)))
    assert made is not None
    assert places.asked_for == access.folders == ["/work"]
    await made.end()
    assert access.folders == []
    await store.close()


async def test_the_token_is_in_the_environment_and_not_in_the_command() -> None:
    store = tasks_in_memory()
    made = await granted(
        AgentAccess(Places(), lambda: store), await working(store), agent(tools=("*",))
    )
    token = token_of(made)
    assert made.server is not None
    assert token in made.server.env.values()
    assert token not in " ".join(made.server.argv) + made.server.url
    await store.close()


async def test_without_a_way_to_the_gateway_the_task_goes_on_and_says_so() -> None:
    store = tasks_in_memory()
    work = await working(store)
    access = AgentAccess(Places("", ""), lambda: store)
    assert (await granted(access, work, agent(tools=("*",)))).server is None
    events = [event.text for event in await store.events(work.task)]
    assert any("neither HTTP nor a control socket" in text for text in events)
    await store.close()


async def test_the_depth_that_is_left_is_the_smallest_limit_of_the_chain() -> None:
    store = tasks_in_memory()
    access = AgentAccess(Places(), lambda: store)
    for max_depth, depth, inherited, left in ((0, 0, None, 0), (2, 0, None, 2), (2, 1, 5, 1),
                                              (5, 1, 0, 0), (1, 3, None, 0)):  # fmt: skip
        work = await working(store)
        entry = agent(tools=("x",), max_depth=max_depth)
        made = await granted(access, work, entry, depth=depth, left=inherited)
        parent = access.parent(f"task:{work.id}")
        assert parent is not None
        assert (parent.left, parent.depth, parent.folder) == (left, depth, "/work")
        await made.end()
        ended = access.parent(f"task:{work.id}")
        assert ended is not None
        assert ended.left == 0
    assert access.parent("local") is None
    await store.close()


async def test_agents_without_rights_or_of_other_kinds_are_handed_no_server() -> None:
    store = tasks_in_memory()
    access = AgentAccess(Places(), lambda: store)
    work = await working(store)
    for entry, depth in (
        (agent(), 0),
        (agent(tools=("*",), kind="cli"), 0),
        (agent(max_depth=1), 1),
    ):
        assert (await granted(access, work, entry, depth=depth)).server is None
    await store.close()


async def test_the_end_of_a_grant_cancels_the_tasks_of_its_agent_only() -> None:
    store = tasks_in_memory(TaskLimits(in_progress=1000))
    access = AgentAccess(Places(), lambda: store)
    work = await working(store)
    made = await granted(access, work, agent(max_depth=1))
    principal = f"task:{work.id}"
    children = [await store.submit(principal, "other", b"{}") for _ in range(150)]
    stranger = await store.submit("local", "other", b"{}")
    await made.end()
    for child in children:
        found = await store.get(principal, child.id)
        assert found is not None
        assert found.is_finished
    left = await store.get("local", stranger.id)
    assert left is not None
    assert not left.is_finished
    await store.close()
