"""One turn of the scripted agent, from its process to its outcome."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from portico.agents.turns.delegation import AgentLaunch, ProvidedServer
from portico.agents.turns.failures import AgentFailed, LoginRequired, WrongAgentVersion
from portico.agents.turns.run_turn import run_turn
from portico.core.config.agents_schema import AgentTimeouts
from portico.core.model.errors import TargetError
from portico.core.state.background import Background
from tests.agents.turns.rig import WAIT_S, FakePort, launch, log_of, permission, prompt


async def test_the_text_of_the_agent_is_the_result(tmp_path: Path) -> None:
    outcome = await run_turn(
        launch({"say": "Hello, "}, {"say": "world"}), prompt(tmp_path), FakePort()
    )
    assert outcome.text == "Hello, world"
    assert outcome.stop_reason == "end_turn"
    assert not outcome.is_error
    assert outcome.session_id == "session-1"
    timings = outcome.timings
    assert None not in (timings.start_s, timings.first_update_s, timings.turn_s)
    assert not timings.is_warm


async def test_updates_about_the_session_are_not_its_first_work(tmp_path: Path) -> None:
    steps = [{"update": {"sessionUpdate": "available_commands_update", "availableCommands": []}}]
    outcome = await run_turn(launch(*steps), prompt(tmp_path), FakePort())
    assert outcome.updates == {"available_commands_update": 1}
    assert outcome.timings.first_update_s is None


async def test_tool_calls_plans_and_modes_are_reported(tmp_path: Path) -> None:
    call = {"toolCallId": "1", "title": "npm test", "kind": "execute", "status": "pending"}
    entries = [
        {"content": "look", "priority": "high", "status": "completed"},
        {"content": "fix it", "priority": "low", "status": "in_progress"},
    ]
    steps = [
        {"say": "Let me see."},
        {"update": {"sessionUpdate": "tool_call", **call}},
        {"update": {"sessionUpdate": "current_mode_update", "currentModeId": "plan"}},
        {"update": {"sessionUpdate": "plan", "entries": entries}},
        {
            "update": {
                "sessionUpdate": "tool_call_update",
                "toolCallId": "1",
                "status": "completed",
            }
        },
        {"say": "All green."},
    ]
    port = FakePort()
    outcome = await run_turn(launch(*steps), prompt(tmp_path), port)
    assert outcome.text == "Let me see.\n\nAll green."
    assert outcome.tool_calls == ({"title": "npm test", "kind": "execute", "status": "completed"},)
    assert [entry["content"] for entry in outcome.plan] == ["look", "fix it"]
    assert "the agent switched to mode 'plan'" in port.events
    assert port.shown[-1] in ("writing the answer", "running: npm test")


async def test_updates_of_unknown_kinds_and_of_sub_agents_are_kept_apart(tmp_path: Path) -> None:
    steps = [
        {"update": {"sessionUpdate": "brand_new", "x": 1}},
        {"update": {"nonsense": True}},
        {
            "update": {
                "sessionUpdate": "agent_message_chunk",
                "content": {"type": "text", "text": "inner"},
            },
            "session_id": "child",
        },
        {"raw": json.dumps({"jsonrpc": "2.0", "method": "qwen/notify/all", "params": {}})},
        {"say": "outer"},
    ]
    outcome = await run_turn(launch(*steps), prompt(tmp_path), FakePort())
    assert outcome.text == "outer"
    assert outcome.updates["brand_new"] == 1
    assert b"brand_new" in outcome.unknown_updates[0]


async def test_junk_on_stdout_is_skipped_and_counted(tmp_path: Path) -> None:
    steps = [
        {"raw": "npm warn deprecated", "times": 20},
        {"raw": "[1, 2"},
        {"raw": "12"},
        {"say": "fine"},
    ]
    outcome = await run_turn(
        launch(*steps, script={"first": ["Welcome!"] * 1500}), prompt(tmp_path), FakePort()
    )
    assert outcome.text == "fine"
    assert outcome.garbage == 1522


async def test_a_flood_of_stderr_does_not_stop_the_agent(tmp_path: Path) -> None:
    outcome = await run_turn(
        launch({"stderr": 4 << 20}, {"say": "here"}), prompt(tmp_path), FakePort()
    )
    assert outcome.text == "here"


async def test_a_long_result_is_cut_in_the_middle(tmp_path: Path) -> None:
    steps = [{"say": "begin"}, {"flood": 5000, "text": "x" * 1000}, {"say": "the end"}]
    outcome = await run_turn(launch(*steps, max_text=10_000), prompt(tmp_path), FakePort())
    assert outcome.text.startswith("beginxxx")
    assert outcome.text.endswith("xthe end")
    assert "characters were cut here" in outcome.text
    assert len(outcome.text) < 10_100
    assert outcome.updates["agent_message_chunk"] == 5002


async def test_one_message_of_many_megabytes_is_accepted(tmp_path: Path) -> None:
    steps = [{"flood": 1, "text": "y", "times": 17 << 20}, {"say": "end"}]
    outcome = await run_turn(launch(*steps), prompt(tmp_path), FakePort())
    assert outcome.text.endswith("yend")
    assert not outcome.is_error


DROPPED = "a message of fake exceeded the limit of 32 MB and was dropped"


async def test_a_result_over_the_limit_is_an_error(tmp_path: Path) -> None:
    port = FakePort()
    steps = [{"flood": 1, "text": "y", "times": 33 << 20}]
    outcome = await run_turn(launch(*steps), prompt(tmp_path), port)
    assert (outcome.text, outcome.garbage, outcome.stop_reason) == ("", 1, "end_turn")
    assert (outcome.is_error, outcome.error) == (True, DROPPED)
    assert port.events == [DROPPED]


async def test_a_text_from_which_a_message_was_dropped_has_a_note(tmp_path: Path) -> None:
    port = FakePort()
    steps = [{"flood": 1, "text": "y", "times": 33 << 20}, {"say": "end"}]
    outcome = await run_turn(launch(*steps), prompt(tmp_path), port)
    assert outcome.text == f"end\n\n({DROPPED}, so this text may be incomplete)"
    assert (outcome.garbage, outcome.is_error) == (1, False)
    assert port.events == [DROPPED]


async def test_a_response_over_the_limit_fails_the_turn(tmp_path: Path) -> None:
    port = FakePort()
    response = {"jsonrpc": "2.0", "id": 3, "result": {"stopReason": "end_turn", "x": "y" * 1000}}
    line = json.dumps(response)
    steps = [{"say": "so far"}, {"raw": line, "padding": 33 << 20}, {"hang": True}]
    outcome = await run_turn(launch(*steps), prompt(tmp_path), port)
    assert (outcome.text, outcome.stop_reason) == ("so far", "failed")
    assert outcome.error == "fake sent a message over the limit of 32 MB, which was dropped"
    assert port.events == [DROPPED]


async def test_a_long_line_that_is_not_a_message_is_only_counted(tmp_path: Path) -> None:
    port = FakePort()
    steps = [{"raw": "log", "padding": 33 << 20}, {"say": "end"}]
    outcome = await run_turn(launch(*steps), prompt(tmp_path), port)
    assert (outcome.text, outcome.garbage, port.events) == ("end", 1, [])


@pytest.mark.parametrize(
    ("step", "why"),
    [
        ({"raw": "x", "padding": 1 << 20, "times": 20}, "bytes of invalid messages"),
        ({"endless": True}, "bytes without a newline"),
    ],
)
async def test_a_flood_of_junk_ends_the_turn(
    tmp_path: Path, step: dict[str, Any], why: str
) -> None:
    agent = launch({"say": "so far"}, step, {"hang": True})
    outcome = await run_turn(agent, prompt(tmp_path), FakePort())
    assert (outcome.text, outcome.stop_reason) == ("so far", "failed")
    assert why in outcome.error


async def test_late_updates_do_not_harm(tmp_path: Path) -> None:
    late = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "!"}}
    outcome = await run_turn(
        launch({"say": "done"}, {"stop": "end_turn", "late": [late] * 50}),
        prompt(tmp_path),
        FakePort(),
    )
    assert outcome.text.startswith("done")
    assert outcome.stop_reason == "end_turn"


@pytest.mark.parametrize(
    ("reason", "error"),
    [
        ("max_tokens", ""),
        ("refusal", "fake refused the task"),
        ("cancelled", "fake cancelled the task by itself"),
        ("brand_new", ""),
    ],
)
async def test_the_stop_reason_is_the_agents_own(tmp_path: Path, reason: str, error: str) -> None:
    outcome = await run_turn(launch({"stop": reason}), prompt(tmp_path), FakePort())
    assert outcome.stop_reason == reason
    assert (outcome.is_error, outcome.error) == (bool(error), error)


async def test_an_agent_may_cancel_its_task_after_a_rejected_permission(tmp_path: Path) -> None:
    agent = launch(permission(), {"stop": "cancelled"})
    outcome = await run_turn(agent, prompt(tmp_path), FakePort())
    why = "fake cancelled the task by itself, after a permission request was rejected"
    assert (outcome.is_error, outcome.error) == (True, why)


async def test_an_agent_that_sends_no_updates_is_shown_as_working(tmp_path: Path) -> None:
    class WatchedPort(FakePort):
        async def progress(self, text: str) -> None:
            await super().progress(text)
            if text == "fake is working":
                working.set()

    working, port = asyncio.Event(), WatchedPort()
    turn = asyncio.create_task(run_turn(launch({"hang": True}), prompt(tmp_path), port))
    await asyncio.wait_for(working.wait(), WAIT_S)
    assert port.shown == ["starting fake", "fake is working"]
    turn.cancel()
    await asyncio.wait((turn,))


@pytest.mark.parametrize(
    ("step", "error"),
    [
        ({"fail": {"code": -32603, "message": "no model"}}, "fake failed: no model (-32603)"),
        ({"exit": 3}, "fake exited with code 3"),
        ({"crash": True}, "fake was killed by SIGKILL"),
    ],
)
async def test_a_turn_that_fails_keeps_its_text(
    tmp_path: Path, step: dict[str, Any], error: str
) -> None:
    outcome = await run_turn(launch({"say": "so far"}, step), prompt(tmp_path), FakePort())
    assert outcome.is_error
    assert outcome.stop_reason == "failed"
    assert outcome.error.startswith(error)
    assert outcome.text == "so far"
    assert outcome.session_id == "session-1"


async def test_a_crash_shows_the_end_of_stderr(tmp_path: Path) -> None:
    steps = [{"stderr": 1, "line": "Error: out of tokens"}, {"exit": 1}]
    outcome = await run_turn(launch(*steps), prompt(tmp_path), FakePort())
    assert "Error: out of tokens" in outcome.error


@pytest.mark.parametrize(
    ("script", "error", "message"),
    [
        (
            {"version": 2},
            WrongAgentVersion,
            "fake speaks version 2 of ACP, and Portico version 1: "
            "install a version of the agent that supports it",
        ),
        ({"version": "x"}, WrongAgentVersion, "fake speaks version x of ACP"),
        ({"exit_at_once": 4, "why": "bad flag"}, TargetError, "fake exited with code 4"),
        (
            {"answers": {"session/new": {"error": {"code": -32603, "message": "no disk"}}}},
            TargetError,
            "fake did not open a session: no disk (-32603)",
        ),
        (
            {"answers": {"initialize": {"error": {"code": -32603, "message": "boom"}}}},
            AgentFailed,
            "fake rejected the handshake (initialize): boom (-32603)",
        ),
        (
            {"answers": {"session/new": {"result": {}}}},
            AgentFailed,
            "fake created a session without an id",
        ),
        (
            {"answers": {"session/new": {"result": [1]}}},
            AgentFailed,
            "fake sent an invalid result of session/new",
        ),
    ],
)
async def test_a_turn_that_cannot_begin_raises(
    tmp_path: Path, script: dict[str, Any], error: type[TargetError], message: str
) -> None:
    with pytest.raises(error) as raised:
        await run_turn(launch(script=script), prompt(tmp_path), FakePort())
    assert str(raised.value).startswith(message)


async def test_a_command_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="there is no command 'no-such-agent'"):
        await run_turn(
            AgentLaunch(name="fake", argv=("no-such-agent",)), prompt(tmp_path), FakePort()
        )


NEEDS_LOGIN = {"code": -32000, "message": "Authentication required"}
METHODS = [
    {"id": "oauth", "name": "Log in with a browser"},
    {"id": "tui", "name": "In a terminal", "type": "terminal", "args": ["login"]},
]


IN_META = [
    {"id": "oauth", "name": "Log in with a browser"},
    {"id": "a", "name": "In a terminal", "_meta": {"type": "terminal", "args": ["--auth"]}},
]


@pytest.mark.parametrize(
    ("options", "methods", "command"),
    [
        ({"login": "fake login --now"}, METHODS, "fake login --now"),
        ({}, METHODS, " login"),
        ({}, IN_META, " --auth"),
    ],
)
async def test_an_agent_that_needs_a_login_names_the_command(
    tmp_path: Path, options: dict[str, Any], methods: list[dict[str, Any]], command: str
) -> None:
    refusal = {**NEEDS_LOGIN, "data": {"authMethods": methods}}
    script = {"answers": {"session/new": {"error": refusal}}}
    with pytest.raises(LoginRequired) as raised:
        await run_turn(launch(script=script, **options), prompt(tmp_path), FakePort())
    assert raised.value.command.endswith(command)
    assert f"run `{raised.value.command}` and log in, then try again" in str(raised.value)
    assert raised.value.methods == ("Log in with a browser", "In a terminal")


@pytest.mark.parametrize("methods", [[], METHODS[:1]])
async def test_without_a_known_command_the_login_is_the_agents_own(
    tmp_path: Path, methods: list[dict[str, Any]]
) -> None:
    refusal = {**NEEDS_LOGIN, "data": {"authMethods": methods}}
    script = {"answers": {"session/new": {"error": refusal}}}
    with pytest.raises(LoginRequired) as raised:
        await run_turn(launch(script=script), prompt(tmp_path), FakePort())
    shown = "fake needs a login: log in to fake as you would without Portico, then try again"
    assert str(raised.value).startswith(shown)
    assert raised.value.command == ""


async def test_a_login_that_is_needed_at_the_prompt_raises_too(tmp_path: Path) -> None:
    script = {"auth_methods": METHODS}
    with pytest.raises(LoginRequired, match="fake needs a login"):
        await run_turn(launch({"fail": NEEDS_LOGIN}, script=script), prompt(tmp_path), FakePort())


async def test_the_agent_is_authenticated_if_configured(tmp_path: Path) -> None:
    log = tmp_path / "log"
    agent = launch(
        script={"log": str(log)}, auth_method="gateway", auth_meta={"gateway": {"baseUrl": "u"}}
    )
    await run_turn(agent, prompt(tmp_path), FakePort())
    (sent,) = (one for one in log_of(log, "client") if one.get("method") == "authenticate")
    assert sent["params"] == {"methodId": "gateway", "_meta": {"gateway": {"baseUrl": "u"}}}


async def test_a_rejected_authentication_is_explained(tmp_path: Path) -> None:
    script = {"answers": {"authenticate": {"error": {"code": -32603, "message": "bad key"}}}}
    agent = launch(script=script, auth_method="key")
    with pytest.raises(AgentFailed, match="fake rejected the login 'key': bad key"):
        await run_turn(agent, prompt(tmp_path), FakePort())


async def test_mode_and_config_options_are_set_before_the_prompt(tmp_path: Path) -> None:
    log = tmp_path / "log"
    agent = launch(
        script={"log": str(log)}, mode="code", config_options={"model": "small", "fast": True}
    )
    await run_turn(agent, prompt(tmp_path), FakePort())
    sent = [(one["method"], one["params"]) for one in log_of(log, "client") if "method" in one]
    id = {"sessionId": "session-1"}
    assert sent[2:-1] == [
        ("session/set_mode", {**id, "modeId": "code"}),
        ("session/set_config_option", {**id, "configId": "model", "value": "small"}),
        (
            "session/set_config_option",
            {**id, "configId": "fast", "value": True, "type": "boolean"},
        ),
    ]
    assert sent[-1][0] == "session/prompt"


@pytest.mark.parametrize(
    ("capabilities", "method"),
    [
        ({"loadSession": True}, "session/load"),
        ({"loadSession": True, "sessionCapabilities": {"resume": {}}}, "session/resume"),
    ],
)
async def test_a_session_is_continued_without_its_history(
    tmp_path: Path, capabilities: dict[str, Any], method: str
) -> None:
    log = tmp_path / "log"
    old = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "old"}}
    script = {"capabilities": capabilities, "history": [old] * 3, "log": str(log)}
    outcome = await run_turn(
        launch({"say": "new"}, script=script), prompt(tmp_path, session_id="earlier"), FakePort()
    )
    assert (outcome.text, outcome.session_id, outcome.can_resume) == ("new", "earlier", True)
    assert [one["method"] for one in log_of(log, "client")][1] == method


async def test_an_agent_that_cannot_continue_a_session_says_so(tmp_path: Path) -> None:
    with pytest.raises(AgentFailed, match="fake cannot continue a session"):
        await run_turn(launch(), prompt(tmp_path, session_id="earlier"), FakePort())


@pytest.mark.parametrize("has_http", [True, False])
async def test_servers_are_handed_over_in_the_form_that_the_agent_supports(
    tmp_path: Path, has_http: bool
) -> None:
    log = tmp_path / "log"
    both = ProvidedServer(
        name="gateway",
        url="http://127.0.0.1:1/mcp",
        headers={"Authorization": "Bearer t"},
        argv=("/bin/portico", "bridge"),
        env={"T": "t"},
    )
    web = ProvidedServer(name="web", url="http://127.0.0.1:2/mcp")
    script = {"log": str(log), "capabilities": {"mcpCapabilities": {"http": has_http}}}
    port = FakePort()
    await run_turn(launch(script=script), prompt(tmp_path, servers=(both, web)), port)
    params = log_of(log, "client")[1]["params"]
    assert params["cwd"] == str(tmp_path)
    if has_http:
        header = {"name": "Authorization", "value": "Bearer t"}
        expected = {"type": "http", "name": "gateway", "url": both.url, "headers": [header]}
        assert params["mcpServers"][0] == expected
        assert len(params["mcpServers"]) == 2
    else:
        stdio = {
            "command": "/bin/portico",
            "args": ["bridge"],
            "env": [{"name": "T", "value": "t"}],
        }
        assert params["mcpServers"] == [{"name": "gateway", **stdio}]
        assert "web is not available to this agent: it needs HTTP" in port.events


async def test_the_prompt_waits_for_the_hook(tmp_path: Path) -> None:
    log = tmp_path / "log"
    seen: list[list[str]] = []

    async def hook() -> None:
        seen.append([one["method"] for one in log_of(log, "client")])

    await run_turn(
        launch(script={"log": str(log)}), prompt(tmp_path, before_prompt=hook), FakePort()
    )
    assert seen == [["initialize", "session/new"]]


async def test_the_prompt_is_sent_even_if_the_hook_times_out(tmp_path: Path) -> None:
    async def hook() -> None:
        raise TimeoutError("the agent is slow")

    port = FakePort()
    assert (await run_turn(launch(), prompt(tmp_path, before_prompt=hook), port)).text == "done"
    assert port.events == ["the agent is slow; prompting it"]


async def test_the_agent_gets_few_variables_and_the_folder_of_the_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_OWN_SECRET", "s")
    steps = [{"env": ["MY_OWN_SECRET", "GIVEN", "HOME"]}, {"say": "\n"}, {"cwd": True}]
    outcome = await run_turn(launch(*steps, env={"GIVEN": "g"}), prompt(tmp_path), FakePort())
    variables, _, cwd = outcome.text.partition("\n")
    found = json.loads(variables)
    assert found["MY_OWN_SECRET"] is None
    assert found["GIVEN"] == "g"
    assert found["HOME"]
    assert cwd == str(tmp_path)


async def test_context_becomes_text_where_the_agent_takes_nothing_else(tmp_path: Path) -> None:
    link = {"type": "resource_link", "name": "a", "uri": "file:///a"}
    inner = {"type": "resource", "resource": {"uri": "x:y", "text": "inside"}}
    given = prompt(tmp_path, "do it", blocks=(link, inner))
    outcome = await run_turn(launch({"say": ""}, script={"echo_prompt": 1}), given, FakePort())
    assert json.loads(outcome.text) == [
        link,
        {"type": "text", "text": "inside"},
        {"type": "text", "text": "do it"},
    ]


async def test_an_agent_that_hangs_at_the_start_is_ended(tmp_path: Path) -> None:
    agent = launch(
        script={"answers": {"initialize": "hang"}, "why": "Error: no network"},
        timeouts=AgentTimeouts(start=0.5),
    )
    with pytest.raises(AgentFailed) as raised:
        await run_turn(agent, prompt(tmp_path), FakePort())
    shown = "fake did not start within 0.5 s; last output:\n  Error: no network"
    assert str(raised.value) == shown


async def test_a_session_that_is_never_opened_is_a_failed_start(tmp_path: Path) -> None:
    agent = launch(script={"answers": {"session/new": "hang"}}, timeouts=AgentTimeouts(start=0.5))
    with pytest.raises(AgentFailed, match=r"fake did not start within 0\.5 s"):
        await run_turn(agent, prompt(tmp_path), FakePort())


async def test_a_result_does_not_wait_for_the_end_of_the_process(tmp_path: Path) -> None:
    endings = Background()
    outcome = await run_turn(
        launch(script={"ignore_eof": True}), prompt(tmp_path), FakePort(), endings=endings
    )
    assert outcome.text == "done"
    assert len(endings) == 1
    await asyncio.wait_for(endings.wait(), WAIT_S)
    assert not endings


async def test_a_port_that_fails_ends_the_turn_with_its_own_error(tmp_path: Path) -> None:
    class BrokenPort(FakePort):
        async def progress(self, text: str) -> None:
            if text == "thinking":
                raise RuntimeError("the lease is lost")

    thought = {"sessionUpdate": "agent_thought_chunk", "content": {"type": "text", "text": ""}}
    with pytest.raises(RuntimeError, match="the lease is lost"):
        await run_turn(
            launch({"update": thought}, {"wait_for_cancel": True}), prompt(tmp_path), BrokenPort()
        )
