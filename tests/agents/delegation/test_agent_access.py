"""A delegated agent gets Portico's tools, limited to its task: what it may do, and what not."""

import http.client
import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from portico.edge.windows.control import send_command
from tests.agents.delegation.desk_windows import (
    ALLOWED,
    FORBIDDEN,
    DeskGateway,
    DeskWindow,
    Step,
    ask,
    call,
    mcp_agent,
    release,
    told,
)
from tests.serve.gateway import text_in
from tests.serve.projects import PLACED
from tests.support.oracle import MODERN
from tests.support.running import Piped, initialize_params, modern_meta
from tests.wrap.faults import until

ROUTES = ("stdio", "http", "stdio at http", "alone")
LISTED = {ALLOWED}
DELEGATING = {"delegate_task", "agent_status", "task_status", "cancel_task", "list_tasks"}


def agents(http: bool) -> dict[str, Any]:
    """Agents with different rights; `http` if they support servers over HTTP."""
    options = {"http": http}
    return {
        "helper": mcp_agent(options, tools=["desk__e*"]),
        "greedy": mcp_agent(options, tools=["*"]),
        "outsider": mcp_agent(options),
        "lead": mcp_agent(options, max_depth=1),
        "chief": mcp_agent(options, tools=["desk__e*"], max_depth=2),
    }


@pytest.fixture(scope="module", params=ROUTES)
def place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[DeskGateway, DeskWindow]]:
    """A gateway and a window, for each way in which agents reach them."""
    route = request.param
    folder = tmp_path_factory.mktemp("access")
    http = "token" if "http" in route else ""
    with DeskGateway(folder, agents(route == "http"), http=http) as gateway:
        window = gateway.window(*(["--alone"] if route == "alone" else []))
        (entry,) = window.delegate("helper", ["handed"])
        assert ("url" in entry) == (route == "http")
        yield gateway, window


@pytest.fixture
def window(place: tuple[DeskGateway, DeskWindow]) -> DeskWindow:
    return place[1]


def why(outcome: dict[str, Any]) -> str:
    """The reason of a refusal: an error, or the result of a tool that failed."""
    if "error" in outcome:
        text: str = outcome["error"]["message"]
        return text
    assert outcome["result"].get("isError"), outcome
    return text_in(outcome["result"])


def text_of(outcome: dict[str, Any]) -> str:
    """The text of a result."""
    assert "result" in outcome, outcome
    assert not outcome["result"].get("isError"), outcome
    return text_in(outcome["result"])


def names(outcome: dict[str, Any]) -> set[str]:
    """The names of listed tools."""
    return {tool["name"] for tool in outcome["result"]["tools"]}


def test_an_agent_lists_and_calls_the_tools_of_its_list(window: DeskWindow) -> None:
    listed, called = window.delegate("helper", ask("tools/list"), call(ALLOWED, text="hello"))
    assert names(listed) == LISTED
    assert text_of(called) == "hello"


def test_an_agent_without_tools_gets_no_server(window: DeskWindow) -> None:
    assert window.delegate("outsider", ["handed"]) == [None]


OUTSIDE = [
    call(FORBIDDEN),
    call("execute_tool", name=FORBIDDEN, arguments={}),
    call("execute_tool", name=ALLOWED, arguments={"text": "hello"}),
    call("execute_read_tool", name=FORBIDDEN, arguments={}),
    call("execute_read_tool", name=ALLOWED, arguments={"text": "hello"}),
    call("describe_tool", name=FORBIDDEN),
    call("search_tools", query="secret"),
    call("gateway_status"),
    call("refresh_tools"),
    call("list_tasks"),
    ask("resources/list"),
    ask("resources/templates/list"),
    ask("resources/read", uri="desk://paper"),
    ask("resources/subscribe", uri="desk://paper"),
    ask("prompts/list"),
    ask("prompts/get", name="desk__greet"),
    ask("completion/complete", ref={"type": "ref/prompt", "name": "desk__greet"}),
    ask("desk/unknown"),
]


def test_anything_outside_its_list_is_refused(window: DeskWindow) -> None:
    for step, outcome in zip(OUTSIDE, window.delegate("helper", *OUTSIDE), strict=True):
        assert "secret" not in json.dumps(outcome).replace(FORBIDDEN, ""), step
        assert why(outcome).startswith(("unknown tool", "method not found")), step


def test_no_capability_is_declared_that_the_agent_does_not_have(window: DeskWindow) -> None:
    (hello,) = window.delegate("helper", ["reconnect"])
    assert {"resources", "prompts", "completions"}.isdisjoint(hello["result"]["capabilities"])
    assert "tools" in hello["result"]["capabilities"]


def test_a_pattern_for_everything_covers_no_delegation_and_no_search(window: DeskWindow) -> None:
    steps = [ask("tools/list"), call("delegate_task", prompt="x"), call("execute_tool", name="x")]
    listed, delegated, executed = window.delegate("greedy", *steps)
    assert names(listed) == {ALLOWED, FORBIDDEN}
    assert "may not delegate further" in why(delegated)
    assert "unknown tool" in why(executed)


def test_delegating_further_is_refused_unless_it_is_granted(window: DeskWindow) -> None:
    for agent in ("helper", "greedy"):
        for tool in ("delegate_task", "agent_status"):
            (outcome,) = window.delegate(agent, call(tool, prompt="x", task_type="code"))
            assert "may not delegate further" in why(outcome)


def nested(agent: str, *steps: Step, **more: Any) -> Step:
    """An agent's own delegation to another."""
    prompt = json.dumps(list(steps))
    return call("delegate_task", task_type="code", agent_id=agent, prompt=prompt, **more)


def within(outcome: dict[str, Any]) -> Any:
    """The outcome of the only step of a nested delegation."""
    (found,) = json.loads(text_of(outcome))
    return found


def test_an_agent_delegates_as_deep_as_it_may(window: DeskWindow) -> None:
    listed, done = window.delegate("lead", ask("tools/list"), nested("lead", ["handed"]))
    assert names(listed) == DELEGATING
    assert within(done) is None  # at the limit, and without tools
    (first,) = window.delegate("chief", nested("chief", nested("chief", nested("helper"))))
    second = within(first)
    assert "may not delegate further" in why(within(second))


def test_a_task_that_no_slot_is_left_for_is_refused_at_once(tmp_path: Path) -> None:
    agents = {"lead": mcp_agent(max_depth=1)}
    with DeskGateway(tmp_path, agents, agents_defaults={"max_concurrent": 1}) as gateway:
        (refused,) = gateway.window().delegate("lead", nested("lead"))
        assert "hold all slots (max_concurrent = 1)" in why(refused)


def test_a_limit_holds_for_all_that_follows_it(window: DeskWindow) -> None:
    # The chief allows two further delegations, the lead before it only one.
    (done,) = window.delegate("lead", nested("chief", ask("tools/list"), nested("helper")))
    listed, refused = json.loads(text_of(done))
    assert names(listed) == LISTED
    assert "may not delegate further" in why(refused)


def test_a_nested_task_stays_in_the_folder_of_its_parent(
    place: tuple[DeskGateway, DeskWindow],
) -> None:
    gateway, window = place
    inner = gateway.work / "inner"
    inner.mkdir(exist_ok=True)
    steps = [nested("outsider", ["folder"], cwd=cwd) for cwd in (".", "inner", "..", "/", "gone")]
    own, below, above, root, gone = window.delegate("lead", *steps)
    assert within(own) == str(gateway.work)
    assert within(below) == str(inner)
    assert "not inside the folder of your task" in why(above)
    assert "not inside the folder of your task" in why(root)
    assert "not a folder" in why(gone)


def test_a_nested_task_gets_no_resources_as_its_context(window: DeskWindow) -> None:
    link = {"type": "resource_link", "uri": "desk://paper", "name": "paper"}
    (outcome,) = window.delegate("lead", nested("outsider", context=[link]))
    assert "may not read resources" in why(outcome)


def test_tasks_of_others_are_out_of_reach(place: tuple[DeskGateway, DeskWindow]) -> None:
    gateway, window = place
    gate = gateway.pipe("gate")
    other = window.submit("outsider", [["read", str(gate)]])
    steps = [
        call("task_status", task_id=other),
        call("agent_status", task_id=other),
        call("cancel_task", task_id=other),
        nested("outsider", resume=other),
        *(ask(f"tasks/{name}", taskId=other) for name in ("get", "result", "cancel")),
        call("list_tasks"),
        ask("tasks/list"),
    ]
    *about, tools, listed = window.delegate("lead", *steps)
    for outcome in about:
        assert re.search("no task|no delegated task|task not found", why(outcome)), outcome
    assert text_of(tools) == "there are no tasks"
    assert listed["result"]["tasks"] == []
    release(gate, "go on")
    assert window.outcomes(other) == ["go on"]


def test_an_agent_follows_and_cancels_its_own_tasks(
    place: tuple[DeskGateway, DeskWindow],
) -> None:
    gateway, window = place
    gate = gateway.pipe("own")
    started = nested("outsider", ["read", str(gate)], background=True)
    begun, tasks = window.delegate("lead", started, call("list_tasks"))
    id = begun["result"]["structuredContent"]["task_id"]
    assert id in text_of(tasks)
    mine = window.ask("tools/call", {"name": "list_tasks", "arguments": {}})["result"]
    (shown,) = [one for one in mine["structuredContent"]["tasks"] if one["task_id"] == id]
    assert shown["parent"] in text_in(mine)  # it belongs to the agent's task


def test_the_tasks_of_an_agent_are_cancelled_when_its_own_ends(
    place: tuple[DeskGateway, DeskWindow],
) -> None:
    gateway, window = place
    gate = gateway.pipe("child")
    begun = gateway.pipe("begun")
    child = [["write", str(begun), ""], ["read", str(gate)]]
    steps = [nested("outsider", *child, background=True), ["read", str(begun)]]
    parent = window.submit("lead", steps)
    started, _ = window.outcomes(parent)
    id = started["result"]["structuredContent"]["task_id"]
    assert until(lambda: gateway.state(f"task:{parent}", id) == "cancelled")


# The end of the access.


def kept_running(gateway: DeskGateway, window: DeskWindow) -> tuple[str, Path, dict[str, Any]]:
    """A task that runs until its pipe is written to; its id, the pipe, and its agent's server."""
    gate, handed = gateway.pipe("gate"), gateway.path("handed")
    task = window.submit("helper", [["tell", str(handed)], ["read", str(gate)]])
    return task, gate, told(handed)


def bridge(entry: dict[str, Any]) -> Piped:
    """The server that an agent is handed, as its client starts it."""
    variables = [f"{pair['name']}={pair['value']}" for pair in entry["env"]]
    return Piped(["env", *variables, entry["command"], *entry["args"]], watched=False)


def posted(
    entry: dict[str, Any], path: str = "/mcp", *, modern: bool = False
) -> tuple[int, dict[str, Any]]:
    """The status and body of a POST with the headers that an agent is handed: a handshake, or a
    modern list of tools."""
    port = int(entry["url"].partition("127.0.0.1:")[2].partition("/")[0])
    headers = {pair["name"]: pair["value"] for pair in entry["headers"]}
    headers |= {"content-type": "application/json"}
    headers |= {"accept": "application/json, text/event-stream"}
    message: dict[str, Any] = {"jsonrpc": "2.0", "id": 1}
    if modern:
        message |= {"method": "tools/list", "params": {"_meta": modern_meta()}}
        headers |= {"mcp-protocol-version": MODERN, "mcp-method": "tools/list"}
    else:
        message |= {"method": "initialize", "params": initialize_params("2025-11-25")}
    connection = http.client.HTTPConnection("127.0.0.1", port)
    try:
        connection.request("POST", path, json.dumps(message).encode(), headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


@pytest.mark.parametrize("auth", ["token", "none"])
def test_over_http_a_token_is_valid_at_one_path_until_its_task_ends(
    tmp_path: Path, auth: str
) -> None:
    with DeskGateway(tmp_path, agents(True), http=auth) as gateway:
        window = gateway.window()
        task, gate, entry = kept_running(gateway, window)
        assert posted(entry)[0] == 200
        status, listed = posted(entry, modern=True)
        assert (status, names(listed)) == (200, LISTED)
        for path in ("/servers/desk/mcp", "/metrics", "/sse", "/nothing"):
            assert posted(entry, path)[0] == 401
        (pair,) = entry["headers"]
        stranger = {**entry, "headers": [{**pair, "value": pair["value"] + "x"}]}
        assert posted(stranger)[0] == 401
        release(gate, "go on")
        assert window.outcomes(task) == [None, "go on"]
        assert posted(entry)[0] == posted(entry, modern=True)[0] == 401


def test_over_stdio_the_access_ends_with_its_task(tmp_path: Path) -> None:
    with DeskGateway(tmp_path, agents(False)) as gateway:
        window = gateway.window()
        task, gate, entry = kept_running(gateway, window)
        with bridge(entry) as second:
            second.initialize()
            assert [tool["name"] for tool in second.ask("tools/list")["result"]["tools"]] == [
                ALLOWED
            ]
            release(gate, "go on")
            assert window.outcomes(task) == [None, "go on"]
            assert second.process.wait(60) == 1
            assert "access ended: the task or the gateway has stopped" in second.stderr()
        with bridge(entry) as refused:
            assert refused.process.wait(60) == 1
            assert "does not run here any more" in refused.stderr()


def test_a_bridge_never_becomes_the_owner(tmp_path: Path) -> None:
    with DeskGateway(tmp_path, agents(False)) as gateway:
        window = gateway.window()
        _, _, entry = kept_running(gateway, window)
        (owner,) = gateway.owners()
        window.close_input()
        assert window.process.wait(60) == 0
        with bridge(entry) as left:
            left.initialize()
            os.kill(owner, signal.SIGKILL)
            assert left.process.wait(60) == 1
        assert until(lambda: not gateway.owners())
        with bridge(entry) as late:
            assert late.process.wait(60) == 1
            assert "it is not running; the access ends with its task" in late.stderr()
        assert gateway.owners() == set()


def test_a_gateway_of_one_client_accepts_only_agents(tmp_path: Path) -> None:
    with DeskGateway(tmp_path, agents(False)) as gateway:
        gateway.window("--alone")
        (pid,) = gateway.owners()
        control = str(gateway.home / "state" / "control")
        for wants in ({}, {"task_token": "portico-task-guessed"}, {"task_token": 7}):
            answer = send_command(control, f"{pid}.sock", "attach", 60, wants=wants)
            assert answer is not None
            assert not answer["ok"]


# The prompt waits for the tools.


def events_of(log: Path) -> list[str]:
    return log.read_text().split() if log.exists() else []


def test_the_prompt_waits_until_the_agent_has_listed_the_tools(tmp_path: Path) -> None:
    log, gate = tmp_path / "log", tmp_path / "gate"
    os.mkfifo(gate)
    options = {"log": str(log), "lists": "gated", "gate": str(gate)}
    with DeskGateway(tmp_path, {"slow": mcp_agent(options, tools=["desk__*"])}) as gateway:
        window = gateway.window()
        task = window.submit("slow", [call(ALLOWED, text="now")])
        release(gate, "list")  # waits until the agent has its session
        (outcome,) = window.outcomes(task)
        assert text_of(outcome) == "now"
        assert events_of(log) == ["session", "lists", "prompted"]


def test_a_prompt_waits_once_for_an_agent_that_never_lists_the_tools(tmp_path: Path) -> None:
    log = tmp_path / "log"
    options = {"log": str(log), "lists": "never"}
    with DeskGateway(tmp_path, {"lazy": mcp_agent(options, tools=["desk__*"])}) as gateway:
        window = gateway.window()
        waited = []
        for _ in range(3):
            task = window.submit("lazy", [call(ALLOWED, text="now")])
            (outcome,) = window.outcomes(task)
            assert text_of(outcome) == "now"
            waited.append([one for one in gateway.events(task) if "did not list" in one])
        assert events_of(log) == ["session", "prompted"] * 3
        assert waited == [["the agent did not list its tools within 5 s; prompting it"], [], []]


def test_a_prompt_waits_again_for_an_agent_that_lists_the_tools_in_time(tmp_path: Path) -> None:
    log, gate = tmp_path / "log", tmp_path / "gate"
    os.mkfifo(gate)
    lazy = {"log": str(log), "lists": "never"}
    slow = {"log": str(log), "lists": "gated", "gate": str(gate)}
    crew = {
        name: mcp_agent(one, tools=["desk__*"]) for name, one in (("lazy", lazy), ("slow", slow))
    }
    with DeskGateway(tmp_path, crew) as gateway:
        window = gateway.window()
        window.outcomes(window.submit("lazy", [call(ALLOWED, text="now")]))
        for _ in range(2):
            task = window.submit("slow", [call(ALLOWED, text="now")])
            release(gate, "list")
            window.outcomes(task)
        assert events_of(log) == ["session", "prompted", *(["session", "lists", "prompted"] * 2)]


def test_the_servers_of_an_agent_run_in_the_folder_of_its_task(tmp_path: Path) -> None:
    placed = {"command": sys.executable, "args": [PLACED]}
    agents = {"helper": mcp_agent(tools=["placed__*"])}
    with DeskGateway(tmp_path, agents, servers__placed=placed) as gateway:
        inner = gateway.work / "inner"
        inner.mkdir()
        window = gateway.window()
        for cwd, folder in ((".", gateway.work), ("inner", inner)):
            (where,) = window.delegate("helper", call("placed__where"), cwd=cwd)
            assert text_of(where).startswith(f"{folder} ")
