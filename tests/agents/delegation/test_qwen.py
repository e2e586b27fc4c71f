"""Delegations to a real agent, Qwen Code, from a client of the official SDK."""

from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client
from mcp.client.session import ClientRequestContext

from tests.agents.delegation.qwen import QwenGateway
from tests.support.model_dialects import USAGE
from tests.support.model_server import calls, model_server, says, stalls
from tests.support.soak import IS_SOAK, times

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("qwen")]

BUILD = [calls("run_shell_command", command="echo built > out.txt"), says("It is ", "built.")]
"""A command, for which the agent requests a permission, and an answer."""

NOTES = """
from portico import Server

server = Server("notes")


@server.tool
def remember(text: str) -> str:
    return f"noted: {text}"


@server.tool
def forget() -> str:
    return "forgotten"
"""
"""A component behind the gateway."""


class Person:
    """Chooses an option in every form, and keeps the questions."""

    def __init__(self, option: str) -> None:
        self.asked: list[types.ElicitRequestFormParams] = []
        self._option = option

    async def __call__(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult:
        assert isinstance(params, types.ElicitRequestFormParams)
        self.asked.append(params)
        return types.ElicitResult(action="accept", content={"option": self._option})


class Progress:
    """Keeps the messages of a call's progress, and creates a file at the first with a text."""

    def __init__(self, text: str, file: Path) -> None:
        self.shown: list[str] = []
        self._text = text
        self._file = file

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        self.shown.append(message or "")
        if self._text in self.shown[-1]:
            self._file.touch()


async def delegate(client: Client, prompt: str, **more: Any) -> dict[str, Any]:
    """The structured result of a delegation."""
    return await call(client, "delegate_task", task_type="general", prompt=prompt, **more)


async def call(client: Client, tool: str, **given: Any) -> dict[str, Any]:
    """The structured result of a call."""
    result = await client.call_tool(tool, given)
    found: dict[str, Any] | None = result.structured_content
    assert found is not None, result.content
    return found


async def in_state(client: Client, task: str, state: str) -> dict[str, Any]:
    """Wait until a task is in a state; its status, or its result."""
    while True:
        found = await call(client, "agent_status", task_id=task, wait_s=20)
        if found["status"] == state:
            return found
        await anyio.sleep(0.05)


async def warmed(client: Client) -> None:
    """Wait until a warm process is ready."""
    while True:
        (agent,) = (await call(client, "agent_status"))["agents"]
        if agent["warm"]:
            return
        await anyio.sleep(0.05)


async def portico(gateway: QwenGateway, *words: str) -> str:
    """The output of a command of Portico, which succeeds."""
    ran = await anyio.run_process(gateway.command(*words), env=gateway.environment)
    return ran.stdout.decode()


async def test_a_prompt_streams_progress_and_returns_the_answer(tmp_path: Path) -> None:
    command = "until [ -e seen ]; do sleep 0.05; done; echo built > out.txt"
    script = {"build": [calls("run_shell_command", command=command), says("It is ", "built.")]}
    async with model_server(script) as model:
        gateway = QwenGateway(tmp_path, model, permissions={"allow": ["execute"]})
        async with gateway.window() as client:
            progress = Progress(f"running: {command}", gateway.work / "seen")
            given = {"task_type": "general", "prompt": "build the project"}
            result = await client.call_tool("delegate_task", given, progress_callback=progress)
        assert await gateway.ended(), gateway.processes()
    found = result.structured_content
    assert found is not None
    assert (found["status"], found["result"]) == ("completed", "It is built.")
    assert (found["agent_id"], found["stop_reason"]) == ("qwen", "end_turn")
    assert (gateway.work / "out.txt").read_text() == "built\n"
    assert progress.shown[0] == "starting qwen"
    assert found["usage"]["total_tokens"] == 2 * USAGE["total_tokens"]
    assert model.unexpected == []


@pytest.mark.soak
@pytest.mark.parametrize("mode", ["legacy", "auto"] if IS_SOAK else ["auto"])
async def test_a_person_allows_what_the_agent_requests(tmp_path: Path, mode: str) -> None:
    person = Person("yes")
    async with model_server({"build": BUILD}) as model:
        gateway = QwenGateway(tmp_path, model)
        async with gateway.window(mode, elicitation_callback=person) as client:
            found = await delegate(client, "build the project")
    assert found["result"] == "It is built."
    assert (gateway.work / "out.txt").exists()
    (question,) = person.asked
    assert "echo built > out.txt" in question.message
    (choice,) = question.requested_schema["properties"].values()
    assert choice["enum"] == ["yes", "no"]


async def test_a_person_rejects_what_the_agent_requests(tmp_path: Path) -> None:
    person = Person("no")
    async with model_server({"build": BUILD}) as model:
        gateway = QwenGateway(tmp_path, model)
        async with gateway.window(elicitation_callback=person) as client:
            found = await delegate(client, "build the project")
    assert found["stop_reason"] == "end_turn"
    assert len(person.asked) == 1
    assert len(model.requests) == 1  # the agent ends its turn
    assert not (gateway.work / "out.txt").exists()


@pytest.mark.soak
@pytest.mark.parametrize(
    ("option", "decision"), [("yes", "allowed"), ("no", "rejected")][: times(1, 2)]
)
async def test_a_person_answers_at_the_terminal(tmp_path: Path, option: str, decision: str) -> None:
    async with model_server({"build": BUILD}) as model:
        gateway = QwenGateway(tmp_path, model)
        async with gateway.window() as client:
            task = (await delegate(client, "build the project", background=True))["task_id"]
            await in_state(client, task, "input_required")
            await portico(gateway, "tasks", "answer", task, option)
            await in_state(client, task, "completed")
            events = await portico(gateway, "tasks", "show", task)
    assert (gateway.work / "out.txt").exists() == (decision == "allowed")
    assert f"permission {decision} by the answer" in " ".join(events.split())


async def test_a_cancelled_task_cancels_the_agents_turn(tmp_path: Path) -> None:
    async with model_server({"ponder": [stalls("Let me ", "think")]}) as model:
        gateway = QwenGateway(tmp_path, model)
        async with gateway.window() as client:
            task = (await delegate(client, "ponder it", background=True))["task_id"]
            await model.stalled.wait()
            await call(client, "cancel_task", task_id=task)
            await in_state(client, task, "cancelled")
            await model.hung_up.wait()
        assert await gateway.ended(), gateway.processes()


async def test_a_task_is_resumed_after_portico_restarted(tmp_path: Path) -> None:
    script = {"remember": [says("I shall remember 42.")], "number": [says("It was 42.")]}
    async with model_server(script) as model:
        gateway = QwenGateway(tmp_path, model)
        async with gateway.window() as client:
            first = await delegate(client, "remember 42")
        assert await gateway.ended(), gateway.processes()
        async with gateway.window() as client:
            second = await delegate(client, "which number was it?", resume=first["task_id"])
    assert second["result"] == "It was 42."
    assert second["session_id"] == first["session_id"]
    prompt, *more = model.texts()[-3:]
    assert prompt[1].endswith("remember 42")
    assert more == [("assistant", "I shall remember 42."), ("user", "which number was it?")]


@pytest.mark.parametrize("over", ["stdio", "http"])
async def test_the_agent_calls_a_tool_of_portico(tmp_path: Path, over: str) -> None:
    (tmp_path / "notes.py").write_text(NOTES)
    component = ("[components.notes]", 'path = "notes.py"')
    tool = "mcp__portico__notes__{}".format
    steps = [calls(tool("forget")), calls(tool("remember"), text="42"), says("It is noted.")]
    allowed = {"tools": ["notes__remember"], "permissions": {"default": "allow"}}
    async with model_server({"note": steps}) as model:
        gateway = QwenGateway(tmp_path, model, *component, **allowed)
        opened = gateway.window() if over == "stdio" else gateway.http_client()
        async with opened as client:
            found = await delegate(client, "note the number 42")
        assert await gateway.ended(), gateway.processes()
    assert found["result"] == "It is noted."
    results = [text for role, text in model.texts() if role == "tool"]
    assert results == [f'Tool "{tool("forget")}" not found in registry.', "noted: 42"]


async def test_a_second_delegation_gets_a_warm_process(tmp_path: Path) -> None:
    async with model_server({"greet": [says("Hello.")]}) as model:
        gateway = QwenGateway(tmp_path, model, pool={"max": 1})
        async with gateway.window() as client:
            cold = await delegate(client, "greet the user")
            await warmed(client)
            warm = await delegate(client, "greet the user")
        assert await gateway.ended(), gateway.processes()
    assert "is_warm" not in cold["timings"]
    assert warm["timings"]["is_warm"]
    assert warm["result"] == "Hello."


async def test_portico_in_the_agents_own_settings_is_bound_by_its_grant(tmp_path: Path) -> None:
    (tmp_path / "notes.py").write_text(NOTES)
    component = ("[components.notes]", 'path = "notes.py"')
    tool = "mcp__own__{}".format
    further = {"task_type": "general", "prompt": "note the number 42"}
    steps = [
        calls(tool("delegate_task"), **further),
        calls(tool("notes__remember"), text="42"),
        says("It is noted."),
    ]
    allowed = {"tools": ["notes__remember"], "permissions": {"default": "allow"}}
    async with model_server({"note": steps}) as model:
        gateway = QwenGateway(tmp_path, model, *component, **allowed)
        gateway.settle()
        async with gateway.window() as client:
            found = await delegate(client, "note the number 42")
            tasks = await call(client, "list_tasks")
        assert await gateway.ended(), gateway.processes()
    assert found["result"] == "It is noted."
    assert len(tasks["tasks"]) == 1
    results = [text for role, text in model.texts() if role == "tool"]
    assert results == [f'Tool "{tool("delegate_task")}" not found in registry.', "noted: 42"]


async def test_the_window_of_a_warm_process_does_not_keep_the_gateway(tmp_path: Path) -> None:
    async with model_server({"greet": [says("Hello.")]}) as model:
        gateway = QwenGateway(tmp_path, model, pool={"max": 1})
        gateway.settle()
        async with gateway.window() as client:
            await delegate(client, "greet the user")
            await warmed(client)
        assert await gateway.ended(), gateway.processes()
