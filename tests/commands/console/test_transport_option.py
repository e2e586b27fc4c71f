"""`portico run --transport`: the user's file loaded, checked, run; every failure in words."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

SERVER = """
from portico import Server
server = Server("adder")

@server.tool
def add(a: int, b: int) -> int:
    return a + b
"""
LIVELY = """
import sys
from contextlib import asynccontextmanager
from portico import Context, Server

@asynccontextmanager
async def lifespan(server):
    print("opened", file=sys.stderr)
    yield "value"
    print("closed", file=sys.stderr)

server = Server("lively", lifespan=lifespan)

@server.tool
def add(a: int, b: int, context: Context) -> str:
    return f"{context.lifespan} {a + b}"
"""
TRANSPORT = """
import sys
from portico import Connection

async def serve(endpoint, address, stop, drain_s):
    def send(message):
        print(message.decode())

    connection = Connection(endpoint, send)
    for line in open(address):
        connection.receive(line)
    await connection.drain(drain_s)
    connection.disconnected()

async def patient(endpoint, address, stop, drain_s):
    print("started", flush=True)
    await stop.wait()
    print(f"stopped, {drain_s:g} s to drain")

class Callable:
    async def __call__(self, endpoint, address, stop, drain_s):
        print("called", address)

instance = Callable()

async def failing(endpoint, address, stop, drain_s):
    inner()

def inner():
    raise ValueError("no luck")

async def explaining(endpoint, address, stop, drain_s):
    from portico import PorticoError
    raise PorticoError("cannot listen: the port is taken; choose another")

async def narrow(endpoint, stop): ...
async def wide(endpoint, address, stop, drain_s, more): ...
async def named(*, endpoint, address, stop, drain_s): ...
def plain(endpoint, address, stop, drain_s): ...
number = 5
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "server.py").write_text(SERVER)
    (tmp_path / "carry.py").write_text(TRANSPORT)
    return tmp_path


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end, in this folder."""
    return subprocess.run(
        [sys.executable, "-m", "portico", "run", *words],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def call(id: int, tool: str = "add") -> str:
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {"name": tool, "arguments": {"a": 2, "b": 3}, "_meta": meta}
    message = {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}
    return json.dumps(message) + "\n"


@pytest.mark.parametrize(
    ("components", "tool"),
    [
        (("server.py",), "add"),
        (("server.py", "--prefix"), "server__add"),
        ((f"{sys.executable} -m portico run server.py",), "add"),
    ],
    ids=["a server", "a composition", "a command"],
)
def test_it_carries_the_messages_of_any_component(
    folder: Path, components: tuple[str, ...], tool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PORTICO_HOME", str(folder / "home"))
    (folder / "messages").write_text(call(1, tool) + "junk\n" + call(2, tool))
    ran = run(folder, *components, "--transport", "carry.py", "--listen", "messages")
    assert (ran.returncode, ran.stderr) == (0, "")
    answers = [json.loads(line) for line in ran.stdout.splitlines()]
    results = {answer.get("id"): answer.get("result", {}) for answer in answers}
    assert [results[id]["content"][0]["text"] for id in (1, 2)] == ["5", "5"]
    assert len(answers) == 3


def test_a_servers_lifespan_is_open_meanwhile(folder: Path) -> None:
    (folder / "lively.py").write_text(LIVELY)
    (folder / "messages").write_text(call(1))
    ran = run(folder, "lively.py", "--transport", "carry.py", "--listen", "messages")
    assert (ran.returncode, ran.stderr) == (0, "opened\nclosed\n")
    assert json.loads(ran.stdout)["result"]["content"][0]["text"] == "value 5"


def test_an_object_with_call_is_a_transport_too(folder: Path) -> None:
    ran = run(folder, "server.py", "--transport", "carry.py:instance")
    assert (ran.returncode, ran.stdout) == (0, "called None\n")


def test_a_signal_stops_it_with_the_time_to_drain(folder: Path) -> None:
    words = ("server.py", "--transport", "carry.py:patient", "--drain", "3")
    command = [sys.executable, "-m", "portico", "run", *words]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        os.kill(process.pid, signal.SIGTERM)
        assert process.stdout.read() == "stopped, 3 s to drain\n"
        assert process.wait(60) == 0


def test_an_exception_names_the_users_own_line_first(folder: Path) -> None:
    ran = run(folder, "server.py", "--transport", "carry.py:failing")
    first, *trace = ran.stderr.splitlines()
    line = TRANSPORT.splitlines().index('    raise ValueError("no luck")') + 1
    assert ran.returncode == 1
    assert first == f"portico: carry.py:{line}: the transport failed: ValueError: no luck"
    assert trace[0] == "Traceback (most recent call last):"
    assert "carry.py" in trace[1], "Portico's own frames are left out"


def test_a_failure_that_the_transport_explains_has_no_traceback(folder: Path) -> None:
    ran = run(folder, "server.py", "--transport", "carry.py:explaining")
    line = TRANSPORT.splitlines().index("    from portico import PorticoError") + 2
    why = "cannot listen: the port is taken; choose another"
    assert (ran.returncode, ran.stderr) == (1, f"portico: carry.py:{line}: {why}\n")


@pytest.mark.parametrize(
    ("transport", "why"),
    [
        ("empty.py", "empty.py: contains no transport 'serve'; define `async def serve("),
        ("carry.py:absent", "carry.py: contains no transport 'absent'; define `async def absent("),
        ("carry.py:narrow", "the transport 'narrow' has other parameters"),
        ("carry.py:wide", "the transport 'wide' has other parameters"),
        ("carry.py:named", "the transport 'named' has other parameters"),
        ("carry.py:plain", "the transport 'plain' is not `async def`"),
        ("carry.py:Callable", "the transport 'Callable' is not a function"),
        ("carry.py:number", "the transport 'number' is not a function"),
        ("tools.json", "tools.json: not a transport; give a Python file"),
        ("https://example.com", "https://example.com: not a transport; give a Python file"),
        ("absent.py", "absent.py: no such file"),
        (".", ".: a folder, not a file"),
        ("broken.py", "broken.py:1: ZeroDivisionError: division by zero"),
        ("needy.py", "needy.py:1: cannot import nothing_like_it: no such module; install it"),
    ],
)
def test_a_file_without_a_usable_transport_is_explained(
    folder: Path, transport: str, why: str
) -> None:
    (folder / "empty.py").write_text("x = 1\n")
    (folder / "tools.json").write_text("[]")
    (folder / "broken.py").write_text("1 / 0\n")
    (folder / "needy.py").write_text("import nothing_like_it\n")
    ran = run(folder, "server.py", "--transport", transport)
    assert ran.returncode == 1
    assert ran.stderr.startswith("portico: ")
    assert why in ran.stderr.splitlines()[0]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--listen", "80"), "--listen is the address of a --transport; for HTTP use --http"),
        (("--transport", "carry.py", "--http", "0"), "--transport and --http exclude each other"),
        (("--transport", "carry.py", "--auth", "token"), "--auth is for --http"),
        (("--transport", "carry.py", "--token-file=x"), "--token-file is for --http"),
        (("--transport", "carry.py", "--allow-host", "a"), "--allow-host is for --http"),
        (("--transport", "carry.py", "--drain-notice", "1"), "--drain-notice is for --http"),
    ],
)
def test_options_that_exclude_each_other_are_wrong_usage(
    folder: Path, options: tuple[str, ...], why: str
) -> None:
    ran = run(folder, "server.py", *options)
    assert ran.returncode == 2
    assert why in ran.stderr


@pytest.mark.parametrize(
    ("listen", "why"),
    [
        ("0.0.0.0:0", "cannot listen on 0.0.0.0: this transport has no authentication"),
        ("nonsense", "'nonsense' is not an address: give PORT, HOST:PORT or [IPV6]:PORT"),
    ],
)
def test_the_websocket_example_explains_an_address_that_it_cannot_use(
    folder: Path, listen: str, why: str
) -> None:
    example = Path(__file__).parents[3] / "examples" / "websocket.py"
    ran = run(folder, "server.py", "--transport", str(example), "--listen", listen)
    assert ran.returncode == 1
    assert ran.stderr.count("\n") == 1
    assert why in ran.stderr
