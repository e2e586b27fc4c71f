"""Delegations as tasks: promoted, of clients that declare tasks, continued, and alone."""

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp.client.session import ClientRequestContext

from bench.tokens import TOKENIZER, count
from tests.agents.delegation.delegations import (
    Crew,
    Person,
    acp,
    data,
    delegate,
    over_http,
    refusal,
    words,
)
from tests.agents.turns.rig import log_of, permission
from tests.serve.gateway import Gateway, command
from tests.serve.task_windows import DECLARED
from tests.support.running import EVERYTHING
from tests.support.shared import unavailable
from tests.wrap.faults import until
from tests.wrap.talk import Client, web

pytestmark = pytest.mark.slow

MOST_TOKENS = 1600
BUDGET_S = 1.0
RESUMES: dict[str, Any] = {"sessionCapabilities": {"resume": {}, "close": {}}}


@pytest.fixture(scope="module")
def crew(tmp_path_factory: pytest.TempPathFactory) -> Crew:
    folder = tmp_path_factory.mktemp("tasks")
    os.mkfifo(folder / "gate")
    agents = {
        "quick": acp({"say": "done"}),
        "slow": acp({"pass": str(folder / "gate")}),
        "asking": acp(permission(), {"say": "ok"}),
        "twice": acp(permission(), permission("execute")),
        "trusting": acp(permission(), permissions={"ask": "model"}),
        "stubborn": acp({"hang": True}),
        "mindful": acp(script={"log": str(folder / "resumed"), "capabilities": RESUMES}),
        "reader": acp(
            script={"log": str(folder / "loaded"), "capabilities": {"loadSession": True}}
        ),
        "forgetful": acp(),
        "pinned": acp(
            {"wait_for_cancel": True},
            script={"log": str(folder / "pinned"), "capabilities": RESUMES},
        ),
    }
    defaults = {"sync_budget_s": BUDGET_S}
    return Crew(folder, agents, agents_defaults=defaults, gateway={"expose": "search"})


@pytest.fixture(scope="module")
def gateway(crew: Crew) -> Iterator[Gateway]:
    with Gateway(crew.home, crew.config) as running:
        yield running


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_delegation_beyond_the_budget_continues_in_the_background(
    gateway: Gateway, crew: Crew, era: str
) -> None:
    async with over_http(gateway.port, era) as client:
        promoted = await delegate(client, "slow")
        task = data(promoted)["task_id"]
        assert data(promoted)["status"] == "running"
        assert data(promoted)["agent_id"] == "slow"
        assert f"task {task} of agent slow continues in the background" in words(promoted)
        assert f'agent_status {{"task_id": "{task}", "wait_s": 50}}' in words(promoted)
        (crew.work.parent / "gate").write_text("in the end")
        ended = await client.call_tool("agent_status", {"task_id": task, "wait_s": 50})
        assert (words(ended), data(ended)["agent_id"]) == ("in the end", "slow")


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_person_who_takes_longer_than_the_budget_answers_the_task(
    gateway: Gateway, crew: Crew, era: str
) -> None:
    async with over_http(gateway.port, era) as client:  # which cannot ask
        result = await delegate(client, "asking")
        task = data(result)["task_id"]
        if data(result)["status"] == "running":  # the agent was not ready within the budget
            about = {"task_id": task, "wait_s": 50}
            result = await client.call_tool("agent_status", about)
        assert data(result)["status"] == "input_required"
        assert f"A person can answer it with `portico tasks answer {task}`." in words(result)
        await client.call_tool("cancel_task", {"task_id": task})


class SlowPerson(Person):
    """Answers only after the budget of a waiting call."""

    async def __call__(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult:
        with anyio.move_on_after(1.5 * BUDGET_S):
            await anyio.sleep_forever()
        return await super().__call__(context, params)


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_the_budget_does_not_end_while_a_person_has_a_question(
    gateway: Gateway, era: str
) -> None:
    person = SlowPerson("yes")
    async with over_http(gateway.port, era, elicitation_callback=person) as client:
        result = await delegate(client, "asking")
        if data(result)["status"] == "running":  # the agent was not done within the rest of it
            about = {"task_id": data(result)["task_id"], "wait_s": 50}
            result = await client.call_tool("agent_status", about)
        assert '"optionId": "once"' in words(result)
    assert len(person.asked) == 1


@pytest.mark.parametrize("tool", ["agent_status", "task_status"])
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_person_is_asked_while_the_state_of_a_task_is_requested(
    gateway: Gateway, era: str, tool: str
) -> None:
    person = SlowPerson("yes")
    async with over_http(gateway.port, era, elicitation_callback=person) as client:
        task = data(await delegate(client, "asking", background=True))["task_id"]
        result = await client.call_tool(tool, {"task_id": task, "wait_s": 20})
        assert '"optionId": "once"' in words(result)
        task = data(await delegate(client, "twice", background=True))["task_id"]
        result = await client.call_tool(tool, {"task_id": task, "wait_s": 20})
        assert words(result).count('"optionId": "once"') == 2
    assert ["edit it" in one.message for one in person.asked] == [True, True, False]


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_question_that_a_model_may_answer_is_not_passed_to_a_person(
    gateway: Gateway, era: str
) -> None:
    person = Person("no")
    async with over_http(gateway.port, era, elicitation_callback=person) as client:
        task = data(await delegate(client, "trusting", background=True))["task_id"]
        asked = await client.call_tool("agent_status", {"task_id": task, "wait_s": 20})
        assert "Question to a model or a person: trusting: edit edit it: allow it?" in words(asked)
        wrong = {"task_id": task, "answer": "always"}
        why = refusal(await client.call_tool("agent_status", wrong))
        assert "'always' is not one of the choices" in why
        assert "the question is still open" in why
        assert "option (yes (Allow once) | no (Reject) | never (Always reject))" in why
        right = {"task_id": task, "answer": "yes", "wait_s": 20}
        result = await client.call_tool("agent_status", right)
        assert '"optionId": "once"' in words(result)
    assert person.asked == []


@pytest.mark.parametrize("tool", ["agent_status", "task_status"])
async def test_an_answer_given_elsewhere_closes_the_dialog_of_a_status_call(
    gateway: Gateway, crew: Crew, tool: str
) -> None:
    asked, closed = anyio.Event(), anyio.Event()

    async def never(context: Any, params: Any) -> types.ElicitResult:
        asked.set()
        try:
            await anyio.sleep_forever()
        finally:
            closed.set()
        raise AssertionError

    async with over_http(gateway.port, elicitation_callback=never) as client:
        task = data(await delegate(client, "asking", background=True))["task_id"]
        about = {"task_id": task, "wait_s": 50}
        waiting = asyncio.create_task(client.call_tool(tool, about))
        await asked.wait()
        answer = [sys.executable, "-m", "portico", "tasks", "answer", task, "yes"]
        await anyio.run_process(answer, env=crew.environment)
        assert '"optionId": "once"' in words(await waiting)
        await closed.wait()


async def test_a_cancelled_task_whose_work_goes_on_is_reported_as_such(gateway: Gateway) -> None:
    async with over_http(gateway.port) as client:
        task = data(await delegate(client, "stubborn"))["task_id"]
        result = await client.call_tool("cancel_task", {"task_id": task})
        why = "Its cancellation was requested; its work has not stopped yet."
        assert data(result)["notes"][0] == why
        assert why in words(result)
        ended = await client.call_tool("agent_status", {"task_id": task, "wait_s": 50})
        assert ended.structured_content is not None
        assert ended.structured_content["status"] == "cancelled"


def call_of(client: Client, agent: str) -> dict[str, Any]:
    """Delegate a task as a client that declares tasks; the answer to the call."""
    arguments = {"task_type": "code", "prompt": "do it", "agent_id": agent}
    params: dict[str, Any] = {"name": "delegate_task", "arguments": arguments}
    params |= about(client) if client.modern else {"task": {"ttl": 60_000}}
    answer: dict[str, Any] = json.loads(client.ask("tools/call", params))
    return answer


def about(client: Client, **params: Any) -> dict[str, Any]:
    """The params of a request about tasks."""
    if not client.modern:
        return params
    meta = {"io.modelcontextprotocol/clientCapabilities": {**DECLARED, "elicitation": {}}}
    return {**params, "_meta": meta}


def task_of(client: Client, id: str) -> dict[str, Any]:
    """A task as its client sees it."""
    found: dict[str, Any] = json.loads(client.ask("tasks/get", about(client, taskId=id)))
    return found


def test_a_modern_client_that_declares_tasks_gets_one_and_answers_its_question(
    gateway: Gateway,
) -> None:
    with web(gateway.port, modern=True) as client:
        created = call_of(client, "asking")
        assert (created["resultType"], created["status"]) == ("task", "working")
        id = created["taskId"]
        assert until(lambda: task_of(client, id)["status"] == "input_required")
        ((key, question),) = task_of(client, id)["inputRequests"].items()
        assert question["method"] == "elicitation/create"
        assert "edit it: allow it?" in question["params"]["message"]
        answer = {"action": "accept", "content": {"option": "yes"}}
        update = about(client, taskId=id, inputResponses={key: answer})
        client.ask("tasks/update", update)
        assert until(lambda: task_of(client, id)["status"] == "completed")
        result = task_of(client, id)["result"]
        assert '"optionId": "once"' in result["structuredContent"]["result"]
        assert (result["structuredContent"]["task_id"], id[:4]) == (id, "ptk_")
        no = {"action": "accept", "content": {"option": "no"}}
        client.ask("tasks/update", about(client, taskId=id, inputResponses={key: no}))
        assert task_of(client, id)["result"] == result, "a late answer changes nothing"


@pytest.mark.parametrize(
    "answer",
    [
        {"action": "decline", "content": None},
        {"action": "accept", "content": None},
        {"action": "accept", "content": {"option": "always"}},
        {"action": "maybe"},
        {"content": {"option": "yes"}},
    ],
    ids=json.dumps,
)
def test_an_answer_that_is_no_permission_allows_nothing(
    gateway: Gateway, answer: dict[str, Any]
) -> None:
    with web(gateway.port, modern=True) as client:
        id = call_of(client, "asking")["taskId"]
        assert until(lambda: task_of(client, id)["status"] == "input_required")
        (key,) = task_of(client, id)["inputRequests"]
        given = client.request(
            "tasks/update", about(client, taskId=id, inputResponses={key: answer})
        )
        if b'"error"' in client.answer(given):  # which leaves the question open
            assert task_of(client, id)["status"] == "input_required"
            client.ask("tasks/cancel", about(client, taskId=id))
        else:
            assert until(lambda: task_of(client, id)["status"] == "completed")
            said = task_of(client, id)["result"]["structuredContent"]["result"]
            assert '"optionId": "no"' in said


def test_a_legacy_client_gets_a_task_and_its_result_asks_the_question(gateway: Gateway) -> None:
    answer = {"action": "accept", "content": {"option": "yes"}}
    able: dict[str, Any] = {
        "elicitation": {},
        "tasks": {"requests": {"elicitation": {"create": {}}}},
    }
    with web(gateway.port, able, answers={"elicitation/create": answer}) as client:
        id = call_of(client, "asking")["task"]["taskId"]
        assert until(lambda: task_of(client, id)["status"] == "input_required")
        result = json.loads(client.ask("tasks/result", {"taskId": id}))
        assert '"optionId": "once"' in result["structuredContent"]["result"]
        assert result["_meta"]["io.modelcontextprotocol/related-task"] == {"taskId": id}
        assert task_of(client, id)["status"] == "completed"


@pytest.mark.parametrize("modern", [False, True])
def test_a_declared_task_is_cancelled_by_its_client(gateway: Gateway, modern: bool) -> None:
    with web(gateway.port, {"tasks": {}}, modern=modern) as client:
        created = call_of(client, "pinned")
        id = created["taskId"] if modern else created["task"]["taskId"]
        client.ask("tasks/cancel", about(client, taskId=id))
        assert until(lambda: task_of(client, id)["status"] == "cancelled")


@pytest.mark.parametrize(
    ("agent", "log", "method"),
    [("mindful", "resumed", "session/resume"), ("reader", "loaded", "session/load")],
)
async def test_a_finished_task_is_continued_in_its_session(
    gateway: Gateway, crew: Crew, agent: str, log: str, method: str
) -> None:
    async with over_http(gateway.port) as client:
        first = data(await delegate(client, agent))
        second = data(await delegate(client, prompt="go on", resume=first["task_id"]))
    assert second["task_id"] != first["task_id"]
    assert (second["agent_id"], second["status"]) == (agent, "completed")
    assert second["session_id"] == first["session_id"] == "session-1"
    sent = [message.get("method") for message in log_of(crew.work.parent / log, "client")]
    assert [one for one in sent if one in ("session/new", method)] == ["session/new", method]


async def test_a_cancelled_task_is_continued_in_its_session(gateway: Gateway, crew: Crew) -> None:
    async with over_http(gateway.port) as client:
        task = data(await delegate(client, "pinned"))["task_id"]
        early = refusal(await delegate(client, resume=task))
        assert f"resume: task {task} is running; wait for it, or cancel it" in early
        await client.call_tool("cancel_task", {"task_id": task})
        await client.call_tool("agent_status", {"task_id": task, "wait_s": 50})
        again = data(await delegate(client, resume=task))["task_id"]
        await client.call_tool("cancel_task", {"task_id": again})
    log = log_of(crew.work.parent / "pinned", "client")
    resumed = [one["params"] for one in log if one.get("method") == "session/resume"]
    assert [one["sessionId"] for one in resumed] == ["session-1"]


async def test_an_agent_that_cannot_resume_starts_anew(gateway: Gateway) -> None:
    async with over_http(gateway.port) as client:
        first = data(await delegate(client, "forgetful"))
        assert "session_id" not in first
        second = data(await delegate(client, resume=first["task_id"]))
        assert (second["agent_id"], second["result"]) == ("forgetful", "done")
        why = refusal(await delegate(client, resume="ptk_unknown"))
        assert why == "resume: there is no delegated task 'ptk_unknown'"


async def test_the_tools_are_listed_and_found_where_others_are_searched(gateway: Gateway) -> None:
    async with over_http(gateway.port) as client:
        tools = (await client.list_tools()).tools
        named = {tool.name: tool for tool in tools}
        assert {"search_tools", "delegate_task", "agent_status", "cancel_task"} <= named.keys()
        description = named["delegate_task"].description or ""
        assert "quick (code)" in description
        found = await client.call_tool("search_tools", {"query": "delegate a task to an agent"})
        assert "delegate_task" in words(found)
        given = {"task_type": "code", "prompt": "x", "agent_id": "quick"}
        through = {"name": "delegate_task", "arguments": given}
        assert words(await client.call_tool("execute_tool", through)) == "done"
        agents = data(await client.call_tool("agent_status", {}))["agents"]
        assert {one["id"]: one["state"] for one in agents}["quick"] == "ready"


async def test_all_tools_of_a_gateway_with_agents_are_few_tokens(tmp_path: Path) -> None:
    if not TOKENIZER.exists():
        unavailable("gpt-tokenizer is not installed: `make setup` does that")
    skills = ["code", "review", "docs", "research", "tests"]
    about = "Good at large changes in many files, and at explaining what it did."
    names = ("qwen", "gemini", "claude", "codex", "opencode")
    agents = {name: acp(capabilities=skills, description=about) for name in names}
    server = command([sys.executable, "-m", "portico", "run", str(EVERYTHING)])
    crew = Crew(tmp_path, agents, servers__everything=server, gateway={"expose": "search"})
    with Gateway(crew.home, crew.config) as gateway:
        async with over_http(gateway.port) as client:
            tools = (await client.list_tools()).tools
    texts = [tool.model_dump_json(by_alias=True, exclude_none=True) for tool in tools]
    assert {"search_tools", "delegate_task"} <= {tool.name for tool in tools}
    assert sum(count(texts)) < MOST_TOKENS


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_the_agents_alone_are_a_server(crew: Crew, era: str) -> None:
    person = Person("yes")
    async with crew.window(era, "run --agents", elicitation_callback=person) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert names == {
            "delegate_task",
            "agent_status",
            "task_status",
            "cancel_task",
            "list_tasks",
        }
        assert words(await delegate(client, "quick")) == "done"
        assert '"optionId": "once"' in words(await delegate(client, "asking"))
    assert len(person.asked) == 1
