"""A question of a task that an agent delegated reaches the person of the agent's own task."""

import asyncio
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client

from tests.agents.delegation.delegations import (
    Crew,
    Person,
    acp,
    data,
    delegate,
    in_state,
    refusal,
    words,
)
from tests.agents.delegation.desk_windows import Step, call, mcp_agent, release
from tests.agents.turns.rig import permission
from tests.support.running import WAIT_S

pytestmark = pytest.mark.slow


def nested(agent: str, *steps: Step, **more: Any) -> Step:
    """An agent's own delegation to another; that of a scripted agent needs no steps."""
    prompt = json.dumps(list(steps))
    return call("delegate_task", task_type="code", agent_id=agent, prompt=prompt, **more)


@pytest.fixture
def crew(tmp_path: Path) -> Crew:
    agents = {
        "lead": mcp_agent(max_depth=1),
        "chief": mcp_agent(max_depth=2),
        "restless": mcp_agent(max_depth=1, timeouts={"idle": 4.0}),
        "patient": acp(permission(), {"say": "no answer"}, permissions={"timeout_s": 6.0}),
        "asking": acp(permission(), {"say": "ok"}),
        "hasty": acp(permission(), {"say": "no answer"}, permissions={"timeout_s": 0.3}),
        "trusting": acp(permission(), {"say": "ok"}, permissions={"ask": "model"}),
    }
    return Crew(tmp_path, agents, gateway={"expose": "all"})


def pipe(crew: Crew) -> Path:
    path = crew.work.parent / "gate"
    os.mkfifo(path)
    return path


async def given(client: Client, agent: str, *steps: Step, **more: Any) -> Any:
    """Delegate some steps to an agent that is an MCP client; the structured result."""
    return data(await delegate(client, agent, prompt=json.dumps(list(steps)), **more))


async def asked(client: Client, task: str) -> dict[str, Any]:
    """Wait until a task asks a question; its status."""
    return await in_state(client, task, "input_required")


async def listed(client: Client) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = data(await client.call_tool("list_tasks", {}))["tasks"]
    return found


async def portico(crew: Crew, *words: str) -> "subprocess.CompletedProcess[bytes]":
    command = crew.command(*words)[: -2 if words[0] == "tasks" else None]
    return await anyio.run_process(command, env=crew.environment, cwd=crew.work, check=False)


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_person_answers_what_a_nested_task_asks(crew: Crew, era: str) -> None:
    person = Person("yes")
    async with crew.window(era, elicitation_callback=person) as client:
        found = await given(client, "lead", nested("asking"))
    (inner,) = json.loads(found["result"])
    assert inner["result"]["structuredContent"]["result"].endswith("ok")
    (question,) = person.asked
    assert "lead delegated task ptk_" in question.message
    assert "edit" in question.message


async def test_a_question_passes_through_every_level(crew: Crew) -> None:
    person = Person("yes")
    async with crew.window(elicitation_callback=person) as client:
        found = await given(client, "chief", nested("chief", nested("asking")))
    assert '"outcome": "selected"' in json.dumps(found["result"]).replace("\\", "")
    (question,) = person.asked
    assert question.message.count("delegated task ptk_") == 2


async def test_nested_tasks_are_listed_under_their_parent(crew: Crew) -> None:
    async with crew.window() as client:
        task = (await given(client, "lead", nested("asking"), background=True))["task_id"]
        await asked(client, task)
        parent, child = await listed(client)
        assert (parent["task_id"], child["parent"]) == (task, task)
        text = words(await client.call_tool("list_tasks", {})).splitlines()
        assert text[0].startswith(task)
        assert text[1].startswith(f"  {child['task_id']} code input_required")
        shown = (await portico(crew, "tasks", "list")).stdout.decode().splitlines()
        assert shown[1].startswith(f"  {task[:12]}")
        assert shown[2].startswith(f"    {child['task_id'][:12]}")
        assert f"1 task waits for an answer: `portico tasks answer {task[:12]}`" in shown[3]
        state = await client.call_tool("task_status", {"task_id": child["task_id"]})
        assert "Question to a person" in words(state)
        await portico(crew, "tasks", "cancel", "--all")


async def test_a_list_with_many_nested_tasks_is_bounded(crew: Crew) -> None:
    many = [nested("lead", background=True) for _ in range(60)]
    async with crew.window() as client:
        await given(client, "lead", *many)
        tasks = await listed(client)
    assert len(tasks) == 50
    assert all(one["parent"] == tasks[0]["task_id"] for one in tasks[1:])


async def test_the_parents_progress_names_the_task_that_waits(crew: Crew) -> None:
    async with crew.window() as client:
        task = (await given(client, "lead", nested("asking"), background=True))["task_id"]
        await asked(client, task)
        _, child = await listed(client)
        waits = f"task {child['task_id']} waits for the answer of a person"
        async with asyncio.timeout(WAIT_S):  # progress is stored once a second
            while waits not in (await portico(crew, "tasks", "show", task)).stdout.decode():
                pass
        await client.call_tool("cancel_task", {"task_id": task})


@pytest.mark.parametrize("which", ["parent", "child"])
async def test_the_first_answer_to_either_closes_both(crew: Crew, which: str) -> None:
    async with crew.window() as client:
        task = (await given(client, "lead", nested("asking"), background=True))["task_id"]
        await asked(client, task)
        _, child = await listed(client)
        answered = task if which == "parent" else child["task_id"]
        ran = await portico(crew, "tasks", "answer", answered, "yes")
        assert ran.returncode == 0, ran.stderr
        found = await in_state(client, task, "completed")
        assert "once" in found["result"]
        states = [one["status"] for one in await listed(client)]
        assert states == ["completed", "completed"]


async def test_a_question_that_expires_is_withdrawn_from_the_parent(crew: Crew) -> None:
    async with crew.window() as client:
        found = await given(client, "lead", nested("hasty"))
        assert "no answer" in found["result"]
        shown = (await portico(crew, "tasks", "show", found["task_id"])).stdout.decode()
        assert (await listed(client))[0]["status"] == "completed"
    assert "has a question: hasty: edit edit it" in shown


async def test_an_agent_is_not_idle_while_a_person_has_a_question_of_its_task(crew: Crew) -> None:
    async with crew.window() as client:
        found = await given(client, "restless", nested("patient"))
    assert found["stop_reason"] == "end_turn"
    assert "no answer" in found["result"]


async def test_no_agent_answers_for_the_person(crew: Crew) -> None:
    gate = pipe(crew)
    steps = [nested("asking", background=True), ["then", str(gate)]]
    async with crew.window() as client:
        task = (await given(client, "lead", *steps, background=True))["task_id"]
        await asked(client, task)
        _, child = await listed(client)
        answers = [
            call("agent_status", task_id=child["task_id"], answer="yes"),
            call("task_status", task_id=child["task_id"], answer="yes"),
            call("task_status", task_id=task, answer="yes"),
            ["ask", "tasks/update", {"taskId": child["task_id"], "inputResponses": {}}],
        ]
        await anyio.to_thread.run_sync(release, gate, json.dumps(answers))
        found = await in_state(client, task, "completed")
        _, outcomes = json.loads(found["result"])
        *told, unknown, updated = outcomes
        for outcome in told:
            assert "meant for a person, not for a model" in json.dumps(outcome)
        assert "there is no task" in json.dumps(unknown)
        assert "only a person answers such questions" in json.dumps(updated)
        ended = await in_state(client, child["task_id"], "cancelled")
        assert ended["status"] == "cancelled"


async def test_a_question_to_a_model_stays_with_the_agent_that_delegated(crew: Crew) -> None:
    gate = pipe(crew)
    steps = [nested("trusting", background=True), ["then", str(gate)]]
    async with crew.window() as client:
        task = (await given(client, "lead", *steps, background=True))["task_id"]
        while len(tasks := await listed(client)) < 2:
            await anyio.lowlevel.checkpoint()
        parent, child = tasks
        await in_state(client, child["task_id"], "input_required")
        (parent, *_) = await listed(client)
        assert parent["status"] != "input_required"
        answer = {"task_id": child["task_id"], "answer": "yes", "wait_s": 20}
        other = await client.call_tool("task_status", answer)
        assert "not for a model" in refusal(other)
        await anyio.to_thread.run_sync(release, gate, json.dumps([call("agent_status", **answer)]))
        found = await in_state(client, task, "completed")
        assert "selected" in found["result"]


async def test_the_tasks_of_an_agent_cannot_be_resumed_alone(crew: Crew) -> None:
    async with crew.window() as client:
        task = (await given(client, "lead", nested("asking"), background=True))["task_id"]
        await asked(client, task)
        _, child = await listed(client)
        await client.call_tool("cancel_task", {"task_id": task})
        ran = await portico(crew, "tasks", "resume", child["task_id"])
    assert f"the agent of {task} started it; resume that one" in ran.stderr.decode()
