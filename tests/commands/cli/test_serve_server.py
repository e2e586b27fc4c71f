"""`server.run()`: a program that serves itself, as `portico run` serves its file."""

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from portico import Server
from tests.support.messages import initialize, modern
from tests.support.running import WAIT_S, Child, Piped

PROGRAM = """
from portico import Only, Server
server = Server("adder", "1.0")
print("printed before it runs")

@server.tool
def add(a: int, b: int) -> int:
    print("printed by a tool")
    return a + b

@server.tool
def hidden() -> str:
    return ""

"""
GUARDED = PROGRAM + 'if __name__ == "__main__":\n    server.run({})\n    print("afterwards")\n'
CALL = modern("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}, id=7)


def program(folder: Path, arguments: str = "", text: str = GUARDED) -> Path:
    file = folder / "adder.py"
    file.write_text(text.replace("{}", arguments))
    return file


def ran(
    command: Sequence[str | Path], send: Sequence[Any] = ()
) -> subprocess.CompletedProcess[str]:
    """Run a Python program with these messages as its input."""
    return subprocess.run(
        [sys.executable, *command],
        input="".join(json.dumps(message) + "\n" for message in send),
        env={key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )


def test_it_serves_stdio_until_the_client_leaves_and_keeps_stdout_for_the_protocol(
    tmp_path: Path,
) -> None:
    done = ran([program(tmp_path)], [CALL])
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["result"]["structuredContent"] == {"result": 3}
    said = ["printed before it runs", "printed by a tool", "afterwards"]
    assert done.stderr.splitlines() == said


async def test_the_official_client_uses_such_a_program(tmp_path: Path) -> None:
    started = StdioServerParameters(command=sys.executable, args=[str(program(tmp_path))])
    async with stdio_client(started) as (read, write), ClientSession(read, write) as client:
        await client.initialize()
        result = await client.call_tool("add", {"a": 1, "b": 2})
    assert result.structured_content == {"result": 3}


def test_links_stand_in_front_of_it(tmp_path: Path) -> None:
    file = program(tmp_path, 'links=[Only(tools=["add"])]')
    done = ran([file], [modern("tools/list", id=7)])
    assert [tool["name"] for tool in json.loads(done.stdout)["result"]["tools"]] == ["add"]


@pytest.mark.parametrize("http", ["0", "'127.0.0.1:0'"])
def test_it_serves_http_at_a_port_or_an_address(tmp_path: Path, http: str) -> None:
    child = Child([sys.executable, str(program(tmp_path, f"http={http}, auth='none'"))])
    try:
        with Piped([sys.executable, "-m", "portico", "wrap", _url(child)]) as client:
            client.initialize()
            answer = client.ask("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})
            assert answer["result"]["structuredContent"] == {"result": 3}
    finally:
        code = child.stop()
    assert code == 0, child.stderr()


def _url(child: Child) -> str:
    while "serving http://" not in child.stderr():
        assert child.process.poll() is None, child.stderr()
    return child.stderr().partition("serving ")[2].split()[0]


def test_a_failure_is_one_line_and_an_exit_code(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = ran([program(tmp_path, f"http={port}, auth='none'")])
    assert done.returncode == 1
    assert done.stderr.startswith(f"portico: cannot serve at {port}: Address already in use; ")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ("http='nonsense'", "'nonsense' is not an address: give PORT, HOST:PORT or [IPV6]:PORT"),
        ("http=0, auth='basic'", "auth must be token or none, not 'basic'"),
    ],
)
def test_a_wrong_option_says_what_is_valid(tmp_path: Path, arguments: str, why: str) -> None:
    done = ran([program(tmp_path, arguments)])
    assert done.returncode == 2
    assert done.stderr == f"portico: {why}\n"


def test_a_lifespan_that_fails_ends_the_program(tmp_path: Path) -> None:
    lifespan = "lifespan=lambda: 1 / 0"
    text = GUARDED.replace('"1.0"', f'"1.0", {lifespan}')
    file = program(tmp_path, text=text)
    done = ran([file], [initialize()])
    assert done.returncode == 1
    why = f"cannot start adder: ZeroDivisionError: division by zero ({file}:3)"
    assert f"portico: {why}" in done.stderr.splitlines()
    assert json.loads(done.stdout)["error"]["message"] == why


@pytest.mark.parametrize("command", ["run", "inspect"])
def test_a_file_that_runs_its_server_when_it_is_loaded_is_refused(
    tmp_path: Path, command: str
) -> None:
    file = program(tmp_path, text=PROGRAM + "server.run()\n")
    line = PROGRAM.count("\n") + 1
    done = ran(["-m", "portico", command, file])
    assert done.returncode == 1
    hint = 'server.run() was called while its file is loaded; put it under `if __name__ == "__main'
    assert f"{file}:{line}: {hint}" in done.stderr


def test_a_guarded_file_is_a_component_too(tmp_path: Path) -> None:
    done = ran(["-m", "portico", "run", program(tmp_path)], [CALL])
    assert json.loads(done.stdout)["result"]["structuredContent"] == {"result": 3}


async def test_it_cannot_be_called_in_a_running_event_loop() -> None:
    with pytest.raises(RuntimeError, match="running event loop; call it outside, or serve"):
        Server("a").run()
    await asyncio.sleep(0)


def test_at_a_terminal_it_says_that_it_waits_for_a_client(tmp_path: Path) -> None:
    ours, its = os.openpty()
    child = subprocess.Popen(
        [sys.executable, str(program(tmp_path))],
        stdin=its,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(its)
    assert child.stderr is not None
    said = ""
    while "HTTP endpoint" not in said:
        line = child.stderr.readline()
        assert line, said
        said += line
    os.close(ours)
    child.communicate(timeout=WAIT_S)
    assert "serving adder over stdio; waiting for an MCP client on standard input." in said
    assert said.endswith('For an HTTP endpoint: server.run(http="8000")\n')
