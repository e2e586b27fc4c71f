"""Whatever runs below an agent is bound by the grant of its task, however it was started."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.agents.delegation.delegations import wrote
from tests.agents.delegation.desk_windows import (
    ALLOWED,
    FORBIDDEN,
    DeskGateway,
    DeskWindow,
    Step,
    call,
    mcp_agent,
    release,
    told,
)
from tests.wrap.faults import alive, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has keepers")

DELEGATING = {"delegate_task", "agent_status", "task_status", "cancel_task", "list_tasks"}


def portico(folder: Path, *words: str) -> list[Any]:
    """A command of Portico and its variables, as an agent's own settings may have them."""
    command = [sys.executable, "-P", "-m", "portico", *words]
    return [command, {"PORTICO_HOME": str(folder / "home")}]


def settled(folder: Path, *options: str) -> dict[str, Any]:
    """The options of an agent that has Portico in its own settings."""
    config = str(folder / "portico.toml")
    return {"own": portico(folder, "serve", "--stdio", "--config", config, *options)}


def own(method: str, **params: Any) -> Step:
    return ["own", method, params]


def own_call(tool: str, /, **arguments: Any) -> Step:
    return own("tools/call", name=tool, arguments=arguments)


def names(answer: dict[str, Any]) -> set[str]:
    return {tool["name"] for tool in answer["result"]["tools"]}


def why(answer: dict[str, Any]) -> str:
    found: str = (
        answer["error"]["message"] if "error" in answer else answer["result"]["content"][0]["text"]
    )
    assert "error" in answer or answer["result"]["isError"], answer
    return found


def further(agent: str) -> dict[str, Any]:
    return {"task_type": "code", "agent_id": agent, "prompt": "[]"}


def test_a_window_below_an_agent_is_bound_by_the_grant_of_its_task(tmp_path: Path) -> None:
    options = settled(tmp_path)
    agents = {
        "outsider": mcp_agent(options),
        "helper": mcp_agent(options, tools=["desk__e*"]),
        "lead": mcp_agent(options, max_depth=1),
    }
    steps = [
        own("tools/list"),
        own_call("delegate_task", **further("outsider")),
        own_call(FORBIDDEN),
        own_call("search_tools", query="secret"),
        own("resources/list"),
    ]
    with DeskGateway(tmp_path, agents) as gateway:
        window = gateway.window()
        for agent, tools in (("outsider", set()), ("helper", {ALLOWED})):
            listed, delegated, called, searched, resources = window.delegate(agent, *steps)
            assert names(listed) == tools
            assert "may not delegate further" in why(delegated)
            assert "unknown tool" in why(called)
            assert "unknown tool" in why(searched)
            assert "method not found" in why(resources)
        (echoed,) = window.delegate("helper", own_call(ALLOWED, text="hello"))
        assert echoed["result"]["content"][0]["text"] == "hello"
        listed, delegated, called, *_ = window.delegate("lead", *steps)
        assert names(listed) == DELEGATING
        assert "error" not in delegated
        assert len(gateway.owners()) == 1


def test_delegations_through_an_agents_own_settings_end_at_the_limit(tmp_path: Path) -> None:
    agents = {"lead": mcp_agent(settled(tmp_path), max_depth=2)}

    def nested(depth: int) -> list[Step]:
        if not depth:
            return [own("tools/list")]
        prompt = json.dumps(nested(depth - 1))
        return [own_call("delegate_task", task_type="code", agent_id="lead", prompt=prompt)]

    with DeskGateway(tmp_path, agents) as gateway:
        (first,) = gateway.window().delegate("lead", *nested(3))
        (second,) = json.loads(first["result"]["content"][0]["text"])
        (third,) = json.loads(second["result"]["content"][0]["text"])
        assert "may not delegate further" in why(third)


def test_a_window_below_an_agent_of_a_gateway_over_http_is_bound_too(tmp_path: Path) -> None:
    agents = {"helper": mcp_agent(settled(tmp_path), tools=["desk__e*"])}
    with DeskGateway(tmp_path, agents, http="none") as gateway:
        (listed,) = gateway.window().delegate("helper", own("tools/list"))
        assert names(listed) == {ALLOWED}


def test_a_window_of_an_agent_joins_the_gateway_that_runs_the_agent(tmp_path: Path) -> None:
    agents = {"helper": mcp_agent(settled(tmp_path), tools=["desk__e*"])}
    with DeskGateway(tmp_path, agents) as gateway:
        gateway.window()  # its owner is not the gateway of the agent
        (listed,) = gateway.window("--alone").delegate("helper", own("tools/list"))
        assert names(listed) == {ALLOWED}


@pytest.mark.parametrize("option", ["--alone", "--group=all"])
def test_no_option_of_a_window_leads_around_the_grant(tmp_path: Path, option: str) -> None:
    agents = {"helper": mcp_agent(settled(tmp_path, option), tools=["desk__e*"])}
    with DeskGateway(tmp_path, agents, groups__all={"servers": ["desk"]}) as gateway:
        listed, delegated = gateway.window().delegate(
            "helper", own("tools/list"), own_call("delegate_task", **further("helper"))
        )
        assert names(listed) == {ALLOWED}
        assert "may not delegate further" in why(delegated)


NAMESPACE = ["/usr/bin/unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]


def has_namespaces() -> bool:
    try:
        return (
            subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False).returncode == 0
        )
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not has_namespaces(), reason="this system has no namespaces for users")
def test_a_window_in_a_namespace_of_its_own_is_bound_too(tmp_path: Path) -> None:
    command, variables = settled(tmp_path)["own"]
    options = {"own": [[*NAMESPACE, *command], variables]}
    agents = {"helper": mcp_agent(options, tools=["desk__e*"])}
    with DeskGateway(tmp_path, agents) as gateway:
        (listed,) = gateway.window().delegate("helper", own("tools/list"))
        assert names(listed) == {ALLOWED}


def test_a_gateway_that_an_agent_starts_itself_has_no_agents(tmp_path: Path) -> None:
    other = wrote(tmp_path / "other.toml", {"another": mcp_agent()}, gateway={"expose": "all"})
    options = {"own": portico(tmp_path, "serve", "--stdio", "--config", str(other))}
    agents = {"outsider": mcp_agent(options)}
    with DeskGateway(tmp_path, agents) as gateway:
        (listed,) = gateway.window().delegate("outsider", own("tools/list"))
        assert "delegate_task" not in names(listed)
        locks = (gateway.home / "state" / "control").glob("*.lock")
        assert len([*locks]) == 1  # an owner of the other one would have ended with the agent


def test_the_window_of_a_warm_process_has_no_rights_and_needs_no_gateway(tmp_path: Path) -> None:
    log = tmp_path / "log"
    options = {**settled(tmp_path), "log": str(log)}
    pool = {"min": 1, "max": 1}
    agents = {"helper": mcp_agent(options, tools=["desk__e*"], pool=pool)}
    with DeskGateway(tmp_path, agents) as gateway:
        window = gateway.window()
        assert until(lambda: log.exists() and "own" in log.read_text())
        assert log.read_text() == "own []\n"
        changed, listed = window.delegate("helper", ["changed"], own("tools/list"))
        assert changed == "notifications/tools/list_changed"
        assert names(listed) == {ALLOWED}
        assert until(lambda: log.read_text().count("own []") == 2)  # the next warm process
        (owner,) = gateway.owners()
        window.close_input()
        assert window.process.wait(60) == 0
        assert until(lambda: not alive({owner}))


COMMANDS = {
    "delegate": ["delegate", "--type", "code", "do it"],
    "tasks answer": ["tasks", "answer", "TASK", "yes"],
    "tasks cancel": ["tasks", "cancel", "TASK"],
    "tasks resume": ["tasks", "resume", "TASK"],
    "servers add": ["servers", "add", "more", "cat"],
    "servers remove": ["servers", "remove", "desk"],
    "stop": ["stop"],
    "run --agents": ["run", "--agents"],
}


def test_commands_for_a_person_are_refused_below_an_agent(tmp_path: Path) -> None:
    agents = {"outsider": mcp_agent(), "waiting": mcp_agent()}
    with DeskGateway(tmp_path, agents) as gateway:
        window, gate = gateway.window(), gateway.pipe("gate")
        task = window.submit("waiting", [["read", str(gate)]])
        config = gateway.config.read_text()
        steps = []
        for words in COMMANDS.values():
            given = [task if word == "TASK" else word for word in words]
            takes_config = [] if given[0] == "tasks" else ["--config", str(gateway.config)]
            steps.append(["hidden", *portico(tmp_path, *given, *takes_config)])
        for name, said in zip(COMMANDS, window.delegate("outsider", *steps), strict=True):
            assert f"portico {name} is refused: it was started by an agent" in said, said
        assert gateway.config.read_text() == config
        release(gate, "go on")
        assert window.outcomes(task) == ["go on"]


def test_the_control_socket_takes_no_command_from_below_an_agent(tmp_path: Path) -> None:
    code = (
        "import sys; from portico.edge.windows.control import send_command as send;"
        "print([send(*sys.argv[1:3], do, 9)['error'] for do in ('stop', 'refresh', 'status')])"
    )
    with DeskGateway(tmp_path, {"outsider": mcp_agent()}) as gateway:
        window = gateway.window()
        (owner,) = gateway.owners()
        folder = str(gateway.home / "state" / "control")
        command = [sys.executable, "-c", code, folder, f"{owner}.sock"]
        (said,) = window.delegate("outsider", ["hidden", command, {}])
        assert said.count("an agent of this gateway sends this command") == 3
        assert window.ask("ping", {})["result"] == {}


def test_a_connection_that_an_exited_process_left_behind_gets_nothing(tmp_path: Path) -> None:
    code = """if True:
        import os, socket, sys
        there = socket.socket(socket.AF_UNIX)
        there.connect(sys.argv[1])
        if os.fork():
            os._exit(0)
        while os.getppid() == int(sys.argv[2]):
            pass
        there.sendall(b'{"do": "attach"}\\n')
        print(there.recv(1000).decode())"""
    with DeskGateway(tmp_path, {"outsider": mcp_agent()}) as gateway:
        window = gateway.window()
        (owner,) = gateway.owners()
        path = str(gateway.home / "state" / "control" / f"{owner}.sock")
        command = ["/bin/sh", "-c", f'exec "$0" -c "$1" {path} $$', sys.executable, code]
        (said,) = window.delegate("outsider", ["hidden", command, {}])
        assert "cannot tell who sends this command" in said


def hidden_sleeper(path: Path) -> Step:
    """A process that ignores polite signals and writes its pid; nothing waits for it."""
    code = (
        "import json, os, signal, sys; signal.signal(15, signal.SIG_IGN);"
        "null = os.open('/dev/null', 2); [os.dup2(null, n) for n in range(3)];"
        "open(sys.argv[1], 'w').write(json.dumps({'pid': os.getpid()})); signal.pause()"
    )
    return ["hidden", [sys.executable, "-I", "-S", "-c", code, str(path)], {}]


@pytest.mark.parametrize("number", [0, signal.SIGTERM, signal.SIGKILL])
def test_hidden_processes_end_with_the_task_and_with_the_gateway(
    tmp_path: Path, number: int
) -> None:
    with DeskGateway(tmp_path, {"outsider": mcp_agent()}) as gateway:
        window, gate, path = gateway.window(), gateway.pipe("gate"), gateway.path("pid")
        task = window.submit("outsider", [hidden_sleeper(path), ["read", str(gate)]])
        pid = told(path)["pid"]
        assert alive({pid})
        if number:
            (owner,) = gateway.owners()
            os.kill(owner, number)
        else:
            release(gate)
            window.outcomes(task)
        assert until(lambda: not alive({pid})), "it survived"


def test_windows_of_an_agent_are_limited_and_leave_room_for_people(tmp_path: Path) -> None:
    code = """if True:
        import json, socket, sys
        said = []
        kept = [socket.socket(socket.AF_UNIX) for _ in range(40)]
        for one in kept:
            one.connect(sys.argv[1])
            one.sendall(b'{"do": "attach"}\\n')
            said.append(one.makefile("rb").readline().decode())
        print(json.dumps(said))"""
    with DeskGateway(tmp_path, {"outsider": mcp_agent()}) as gateway:
        window = gateway.window()
        (owner,) = gateway.owners()
        path = str(gateway.home / "state" / "control" / f"{owner}.sock")
        (said,) = window.delegate("outsider", ["hidden", [sys.executable, "-c", code, path], {}])
        replies = [json.loads(line) for line in json.loads(said)]
        assert sum(reply["ok"] for reply in replies) == 16
        assert "client limit reached (16)" in replies[-1]["error"]
        assert isinstance(gateway.window(), DeskWindow)


def test_an_agent_calls_with_its_own_token_only(tmp_path: Path) -> None:
    agents = {"greedy": mcp_agent(tools=["*"]), "outsider": mcp_agent()}
    with DeskGateway(tmp_path, agents) as gateway:
        window, gate, handed = gateway.window(), gateway.pipe("gate"), gateway.path("handed")
        rich = window.submit("greedy", [["tell", str(handed)], ["read", str(gate)]])
        entry = told(handed)
        variables = {pair["name"]: pair["value"] for pair in entry["env"]}
        stolen = ["hidden", [entry["command"], *entry["args"]], variables]
        (said,) = window.delegate("outsider", stolen)
        assert "does not run here any more" in said
        release(gate)
        window.outcomes(rich)
        assert window.delegate("greedy", call(ALLOWED, text="x"))[0]["result"]
