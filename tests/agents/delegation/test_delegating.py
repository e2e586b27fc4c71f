"""The whole path from a client of the official SDK to an agent and back."""

import asyncio
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client

from tests.agents.delegation.delegations import (
    Crew,
    Person,
    acp,
    data,
    delegate,
    in_state,
    over_http,
    refusal,
    words,
)
from tests.agents.turns.rig import permission
from tests.serve.gateway import Gateway

pytestmark = pytest.mark.slow

Connect = Callable[..., AbstractAsyncContextManager[Client]]
USAGE = {"inputTokens": 5, "outputTokens": 7, "totalTokens": 12}
CALLS = 300


def flood() -> list[dict[str, Any]]:
    """Many tool calls at once."""
    call = {"sessionUpdate": "tool_call", "kind": "execute", "status": "in_progress"}
    return [
        {"update": {**call, "toolCallId": f"call-{n}", "title": f"npm test {n}"}}
        for n in range(CALLS)
    ]


@pytest.fixture(scope="module")
def crew(tmp_path_factory: pytest.TempPathFactory) -> Crew:
    folder = tmp_path_factory.mktemp("delegating")
    gates = {name: str(folder / name) for name in ("quick", "slow")}
    for gate in gates.values():
        os.mkfifo(gate)
    agents = {
        "quick": acp({"say": "all "}, {"say": "done"}, {"stop": "end_turn", "usage": USAGE}),
        "busy": acp(*flood(), {"pass": gates["quick"]}),
        "slow": acp({"pass": gates["slow"]}),
        "asking": acp(permission(), {"say": "ok"}),
        "trusting": acp(permission(), permissions={"ask": "model"}),
        "strict": acp(
            permission(), permission("execute"), permissions={"ask": "model", "deny": ["edit"]}
        ),
        "hasty": acp(permission(), permissions={"timeout_s": 0.3}),
        "endless": acp({"wait_for_cancel": True}),
    }
    return Crew(folder, agents, gateway={"expose": "all"})


@pytest.fixture(scope="module")
def gateway(crew: Crew) -> Iterator[Gateway]:
    with Gateway(crew.home, crew.config) as running:
        yield running


@pytest.fixture(params=["legacy", "modern"])
def era(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["stdio", "http"])
def connect(request: pytest.FixtureRequest, crew: Crew, era: str) -> Connect:
    if request.param == "stdio":
        return lambda **options: crew.window(era, "serve --alone", **options)
    gateway: Gateway = request.getfixturevalue("gateway")
    return lambda **options: over_http(gateway.port, era, **options)


async def test_a_task_is_delegated_and_its_result_returned(connect: Connect, crew: Crew) -> None:
    async with connect() as client:
        result = await delegate(client, "quick")
    found = data(result)
    assert words(result) == found["result"] == "all done"
    assert found["task_id"].startswith("ptk_")
    assert (found["agent_id"], found["status"]) == ("quick", "completed")
    assert found["stop_reason"] == "end_turn"
    assert found["usage"] == {"input_tokens": 5, "output_tokens": 7, "total_tokens": 12}
    assert found["cwd"] == str(crew.work)


async def test_progress_is_sent_at_most_once_a_second(connect: Connect, crew: Crew) -> None:
    shown: list[str] = []
    gate = crew.work.parent / "quick"

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        shown.append(message or "")
        if message == f"running: npm test {CALLS - 1}":
            gate.write_text("enough")

    arguments = {"task_type": "code", "prompt": "x", "agent_id": "busy"}
    async with connect() as client:
        began = time.monotonic()
        result = await client.call_tool("delegate_task", arguments, progress_callback=on_progress)
        took_s = time.monotonic() - began
    assert words(result) == "enough"
    assert f"running: npm test {CALLS - 1}" in shown
    assert len(shown) <= math.ceil(took_s) + 1
    assert len(set(shown)) == len(shown)


async def test_a_task_in_the_background_is_followed(connect: Connect, crew: Crew) -> None:
    async with connect() as client:
        began = await delegate(client, "slow", background=True)
        task = data(began)["task_id"]
        assert (data(began)["status"], data(began)["agent_id"]) == ("running", "slow")
        assert words(began).startswith(f"Task {task} is running, agent slow; ")
        status = await client.call_tool("agent_status", {"task_id": task})
        assert data(status)["status"] == "running"
        assert f"{task} code running (" in words(status)
        assert ", agent slow" in words(status)
        (crew.work.parent / "slow").write_text("late result")
        result = await client.call_tool("agent_status", {"task_id": task, "wait_s": 50})
        assert words(result) == "late result"
        assert (data(result)["task_id"], data(result)["agent_id"]) == (task, "slow")
        newest, *_ = await crew.tasks()
        assert (newest.id, newest.state) == (task, "completed")


@pytest.mark.parametrize(
    ("person", "outcome"),
    [
        (Person("yes"), '"optionId": "once"'),
        (Person("no"), '"optionId": "no"'),
        (Person(action="decline"), '"optionId": "no"'),
        (Person(action="cancel"), '"optionId": "no"'),
    ],
    ids=["allowed", "rejected", "declined", "cancelled"],
)
async def test_a_person_answers_a_permission_request(
    connect: Connect, person: Person, outcome: str
) -> None:
    person.asked.clear()
    async with connect(elicitation_callback=person) as client:
        result = await delegate(client, "asking")
    assert outcome in words(result)
    (question,) = person.asked
    assert "edit it: allow it?" in question.message
    option = question.model_dump(by_alias=True)["requestedSchema"]["properties"]["option"]
    assert option["enum"] == ["yes", "no", "never"]
    async with connect() as client:
        status = await client.call_tool("agent_status", {})
    (agent,) = [one for one in data(status)["agents"] if one["id"] == "asking"]
    assert {"queue", "start", "turn"} <= agent["totals"]["seconds"].keys()
    assert agent["totals"]["permissions"]
    assert "asking: ready" in words(status)
    assert "permissions: " in words(status)


async def test_a_task_is_cancelled(connect: Connect) -> None:
    async with connect() as client:
        task = data(await delegate(client, "endless", background=True))["task_id"]
        await client.call_tool("cancel_task", {"task_id": task})
        ended = await client.call_tool("agent_status", {"task_id": task, "wait_s": 50})
        assert ended.is_error
        assert ended.structured_content is not None
        assert ended.structured_content["status"] == "cancelled"


async def test_a_model_answers_only_where_the_policy_says_so(gateway: Gateway) -> None:
    async with over_http(gateway.port) as client:
        result = await delegate(client, "trusting")
        task = data(result)["task_id"]
        assert data(result)["status"] == "input_required"
        assert "Question to a model or a person: trusting: edit edit it: allow it?" in words(result)
        assert "option (yes (Allow once) | no (Reject) | never (Always reject))" in words(result)
        answered = {"task_id": task, "answer": "yes", "wait_s": 50}
        ended = await client.call_tool("agent_status", answered)
        assert '"optionId": "once"' in words(ended)

        task = data(await delegate(client, "asking", background=True))["task_id"]
        await in_state(client, task, "input_required")
        why = refusal(await client.call_tool("agent_status", {"task_id": task, "answer": "yes"}))
        assert "meant for a person, not for a model" in why
        assert f"`portico tasks answer {task}`" in why
        await client.call_tool("cancel_task", {"task_id": task})


async def test_a_model_is_not_asked_about_what_is_denied(gateway: Gateway) -> None:
    async with over_http(gateway.port) as client:
        result = await delegate(client, "strict")
        assert "execute it: allow it?" in words(result)  # the edit is rejected by then
        task = data(result)["task_id"]
        answered = {"task_id": task, "answer": "yes", "wait_s": 50}
        ended = words(await client.call_tool("agent_status", answered))
        assert [one for one in ("once", "no") if f'"optionId": "{one}"' in ended] == ["once", "no"]
        assert ended.index('"no"') < ended.index('"once"')


async def test_an_answer_given_elsewhere_ends_the_question_to_the_client(
    gateway: Gateway, crew: Crew
) -> None:
    asked = anyio.Event()

    async def never(context: Any, params: Any) -> types.ElicitResult:
        asked.set()
        await anyio.sleep_forever()
        raise AssertionError

    async with over_http(gateway.port, elicitation_callback=never) as client:
        waiting = asyncio.create_task(delegate(client, "asking"))
        await asked.wait()
        (task,) = [one.id for one in await crew.tasks() if one.state == "input_required"]
        answer = [sys.executable, "-m", "portico", "tasks", "answer", task, "yes"]
        await anyio.run_process(answer, env=crew.environment)
        assert '"optionId": "once"' in words(await waiting)


async def test_a_question_without_an_answer_is_rejected_at_its_deadline(gateway: Gateway) -> None:
    async with over_http(gateway.port) as client:
        result = await delegate(client, "hasty")
        assert '"outcome": "selected", "optionId": "no"' in words(result)
        again = {"task_id": data(result)["task_id"], "answer": "yes"}
        assert "no open question" in refusal(await client.call_tool("agent_status", again))
