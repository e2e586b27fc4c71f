"""The requests of an agent: off unless granted, and confined to the task's folder."""

import json
from pathlib import Path
from typing import Any

import pytest

from portico.agents.turns.delegation import AgentAnswer
from portico.agents.turns.run_turn import run_turn
from portico.core.config.agents_schema import AgentCallbacks, AgentPermissions
from tests.agents.turns.rig import FakePort, launch, log_of, prompt

ALL = AgentCallbacks(fs="read-write", terminal=True)


async def answered(
    folder: Path, method: str, params: dict[str, Any], port: FakePort | None = None, **options: Any
) -> Any:
    """The result or error that the agent got for one request."""
    agent = launch({"ask": method, "params": params}, **options)
    return json.loads((await run_turn(agent, prompt(folder), port or FakePort())).text)


@pytest.mark.parametrize(
    "method",
    [
        "fs/read_text_file",
        "fs/write_text_file",
        "terminal/create",
        "terminal/output",
        "terminal/wait_for_exit",
        "terminal/kill",
        "terminal/release",
        "craft/drainMidTurnQueue",
        "_vendor/thing",
        "mcp/message",
    ],
)
async def test_what_is_not_granted_or_unknown_is_refused(tmp_path: Path, method: str) -> None:
    path = str(tmp_path / "a")
    params = {"path": path, "content": "", "command": "touch", "args": [path]}
    error = await answered(tmp_path, method, params)
    assert error == {"code": -32601, "message": f"this client does not support {method}"}
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    ("callbacks", "fs", "terminal"),
    [
        (AgentCallbacks(), (False, False), False),
        (AgentCallbacks(fs="write"), (False, True), False),
        (ALL, (True, True), True),
    ],
)
async def test_only_granted_services_are_declared(
    tmp_path: Path, callbacks: AgentCallbacks, fs: tuple[bool, bool], terminal: bool
) -> None:
    log = tmp_path / "log"
    await run_turn(
        launch(script={"log": str(log)}, callbacks=callbacks), prompt(tmp_path), FakePort()
    )
    declared = log_of(log, "client")[0]["params"]["clientCapabilities"]
    assert declared["fs"] == {"readTextFile": fs[0], "writeTextFile": fs[1]}
    assert declared["terminal"] is terminal


async def test_files_are_read_and_written_in_the_folder(tmp_path: Path) -> None:
    path = str(tmp_path / "sub" / "a.txt")
    port = FakePort()
    write = {"path": path, "content": "hello\nworld\n"}
    assert await answered(tmp_path, "fs/write_text_file", write, port, callbacks=ALL) == {}
    assert port.events == [f"wrote {path}"]
    read = {"path": path, "line": 2, "limit": 1}
    result = await answered(tmp_path, "fs/read_text_file", read, callbacks=ALL)
    assert result == {"content": "world\n"}


async def test_files_outside_the_folder_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "inside"
    folder.mkdir()
    (folder / "out").symlink_to(tmp_path)
    for path in (f"{folder}/../a", f"{folder}/out/a", str(tmp_path / "a"), "a"):
        params = {"path": path, "content": "x"}
        error = await answered(folder, "fs/write_text_file", params, callbacks=ALL)
        assert error["code"] == -32602
    assert not (tmp_path / "a").exists()


async def test_a_denial_of_the_policy_holds_for_granted_services_too(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("KEY=1")
    (tmp_path / "link").symlink_to(".env")
    policy = AgentPermissions(allow=("*",), deny=("read:.env", "edit", "execute"))
    options: dict[str, Any] = {"callbacks": ALL, "permissions": policy}
    port = FakePort()
    for name in (".env", "link"):
        params = {"path": str(tmp_path / name)}
        error = await answered(tmp_path, "fs/read_text_file", params, port, **options)
        assert error["message"].startswith("the policy denies read of")
    assert port.events[0] == f"refused by the policy: read {tmp_path}/.env"
    write = {"path": str(tmp_path / "b"), "content": "x"}
    assert (await answered(tmp_path, "fs/write_text_file", write, **options))["code"] == -32602
    run = {"command": "touch", "args": [str(tmp_path / "c")]}
    error = await answered(tmp_path, "terminal/create", run, **options)
    assert error["message"] == "the policy denies commands"
    assert not (tmp_path / "b").exists()
    assert not (tmp_path / "c").exists()


async def test_a_command_runs_in_a_terminal_in_the_folder(tmp_path: Path) -> None:
    script = "pwd; echo $GIVEN; echo oops >&2; exit 3"
    step = {"terminal": "sh", "args": ["-c", script]}
    agent = launch(step, callbacks=ALL, env={"GIVEN": "g"})
    outcome = await run_turn(agent, prompt(tmp_path), FakePort())
    exited, output, gone = json.loads(outcome.text)
    assert exited == {"exitCode": 3, "signal": None}
    assert sorted(output["output"].splitlines()) == sorted([str(tmp_path), "g", "oops"])
    assert output["exitStatus"] == exited
    assert output["truncated"] is False
    assert gone == -32002


@pytest.mark.parametrize(
    ("params", "why"),
    [
        ({"command": "no-such-program"}, "cannot run 'no-such-program'"),
        ({}, "the command is missing"),
        ({"command": "ls", "cwd": "/"}, "'/' is outside the folder of the task"),
        ({"command": "ls", "cwd": "sub"}, "the path 'sub' is not absolute"),
    ],
)
async def test_a_command_that_cannot_run_is_refused(
    tmp_path: Path, params: dict[str, Any], why: str
) -> None:
    error = await answered(tmp_path, "terminal/create", params, callbacks=ALL)
    assert error["message"].startswith(why)


FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
QUESTION = {"mode": "form", "message": "Which name?", "requestedSchema": FORM}


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        (
            AgentAnswer("accept", {"name": "x"}),
            {"action": "accept", "content": {"name": "x"}},
        ),
        (AgentAnswer("decline"), {"action": "decline"}),
        (AgentAnswer("cancel"), {"action": "cancel"}),
        (AgentAnswer("made up"), {"action": "cancel"}),
        (None, {"action": "cancel"}),
    ],
)
async def test_a_question_of_the_agent_gets_the_answer_of_the_owner(
    tmp_path: Path, answer: AgentAnswer | None, result: dict[str, Any]
) -> None:
    port = FakePort(answer)
    assert await answered(tmp_path, "elicitation/create", QUESTION, port) == result
    (question,) = port.questions
    assert (question.kind, question.message, question.schema) == (
        "elicitation",
        f"fake: Which name?\nfolder: {tmp_path}",
        FORM,
    )


async def test_labels_in_a_form_of_the_agent_deceive_nobody(tmp_path: Path) -> None:
    pin = {"type": "string", "title": "[github] PIN\u202e", "description": "safe\u200b"}
    form = {"type": "object", "properties": {"pin": pin}}
    port = FakePort(AgentAnswer("decline"))
    await answered(tmp_path, "elicitation/create", {"message": "?", "requestedSchema": form}, port)
    (question,) = port.questions
    shown = question.schema["properties"]["pin"]
    assert shown["title"] == "[fake] [github] PIN\\u{202e}"
    assert shown["description"] == "safe\\u{200b}"


@pytest.mark.parametrize(
    "params",
    [
        {"mode": "url", "message": "open", "url": "https://x.example", "elicitationId": "1"},
        {"mode": "form", "message": "?"},
    ],
)
async def test_a_question_that_cannot_be_shown_is_cancelled(
    tmp_path: Path, params: dict[str, Any]
) -> None:
    port = FakePort(AgentAnswer("accept", {}))
    assert await answered(tmp_path, "elicitation/create", params, port) == {"action": "cancel"}
    assert port.questions == []


async def test_a_question_nobody_answers_in_time_is_cancelled(tmp_path: Path) -> None:
    port = FakePort(hangs=True)
    policy = AgentPermissions(timeout_s=0.05)
    result = await answered(tmp_path, "elicitation/create", QUESTION, port, permissions=policy)
    assert result == {"action": "cancel"}


async def test_a_flood_of_requests_is_answered_one_way_or_the_other(tmp_path: Path) -> None:
    step = {"ask_many": 500, "method": "session/request_permission", "params": {}}
    outcome = await run_turn(launch(step), prompt(tmp_path), FakePort())
    assert outcome.text == "500 answered"


async def test_a_text_that_is_far_larger_as_json_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "control.txt"
    path.write_text("\x01" * (3 * 1024 * 1024))
    params = {"path": str(path)}
    error = await answered(tmp_path, "fs/read_text_file", params, callbacks=ALL)
    assert error["message"].endswith("exceeds 16777216 bytes as JSON; read some lines of it")
    path.write_text('"\\\x01é\U0001f600' * 20_000)  # several pieces
    result = await answered(tmp_path, "fs/read_text_file", params, callbacks=ALL)
    assert result == {"content": path.read_text()}
