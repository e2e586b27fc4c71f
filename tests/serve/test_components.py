"""Components of a config beside real servers: each in its own process, or in the gateway's."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.rigs.running import bad
from tests.serve.components import CALC, WAYS, Workshop, connected
from tests.serve.gateway import Gateway, Pipes, command, serve_command, text_in
from tests.support.running import WAIT_S
from tests.wrap.faults import alive, descendants, portico_command, until
from tests.wrap.talk import Client

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("serve-components")]

NOTES = {
    "tools": [
        {
            "name": "echo",
            "description": "Return a text.",
            "inputSchema": {
                "type": "object",
                "properties": {"text": {"type": "string"}},
                "required": ["text"],
            },
        }
    ]
}
FORKS = '''
import os
import signal
import time
from pathlib import Path

from portico import Server

server = Server("forks")
if os.fork() == 0:
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Path(__file__).with_suffix(".pid").write_text(str(os.getpid()))
    time.sleep(1000)


@server.tool
def crash() -> str:
    """End the whole process."""
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


@server.tool
def pid() -> int:
    """Return the process."""
    return os.getpid()
'''


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    made = Workshop(tmp_path)
    made.file("calc.py", CALC)
    return made


@pytest.fixture(scope="module", params=["search", "all"])
def mixed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Workshop, str]:
    """Every kind of component beside a server, and what the gateway exposes."""
    made = Workshop(tmp_path_factory.mktemp("mixed"))
    made.file("calc.py", f'print("not for the client", flush=True)\n{CALC}')
    made.file("notes.json", json.dumps(NOTES))
    made.file("notes.py", "def echo(arguments):\n    return arguments['text']\n")
    plain = bad("stdio", "plain")
    made.write(
        {
            "calc": {"path": "calc.py", "description": "Sums"},
            "named": {"path": "calc.py:server", "tools": {"deny": ["nothing"]}},
            "inside": {"path": "calc.py", "in_process": True},
            "notes": {"path": "notes.json", "handlers": "notes.py"},
            "inner": {"path": "notes.json", "handlers": "notes.py", "in_process": True},
            "quoted": {"command": " ".join(f"'{word}'" for word in plain)},
            "off": {"path": "calc.py", "enabled": False},
        },
        {"plain": command(plain)},
        expose=request.param,
        groups={"some": ["calc", "plain"]},
    )
    return made, request.param


@pytest.fixture(scope="module")
def gateway(mixed: tuple[Workshop, str]) -> Iterator[Gateway]:
    with Gateway(mixed[0].home, mixed[0].config) as running:
        yield running


@pytest.fixture(params=WAYS)
def client(
    request: pytest.FixtureRequest, mixed: tuple[Workshop, str], gateway: Gateway, tmp_path: Path
) -> Iterator[Client]:
    with connected(request.param, mixed[0].config, gateway, tmp_path) as found:
        yield found


def used(client: Client, expose: str, tool: str, **arguments: Any) -> str:
    """The text of a tool's result, called in the way that its gateway shows."""
    params = {"name": tool, "arguments": arguments}
    if expose == "search":
        params = {"name": "execute_tool", "arguments": params}
    return text_in(json.loads(client.ask("tools/call", params)))


def test_components_stand_beside_servers(client: Client, mixed: tuple[Workshop, str]) -> None:
    expose = mixed[1]
    for name in ("calc", "named", "inside"):
        assert used(client, expose, f"{name}__add", a=2, b=3) == "5"
    for name in ("notes", "inner", "plain", "quoted"):
        assert used(client, expose, f"{name}__echo", text="hi") == "hi"
    params = {"name": "off__add", "arguments": {"a": 1, "b": 2}}
    off = client.request("tools/call", {"name": "execute_tool", "arguments": params})
    assert b"off is disabled in the config" in client.answer(off)


def test_a_group_serves_its_components_alone(mixed: tuple[Workshop, str], tmp_path: Path) -> None:
    options = ("--group", "some", "--expose", "all")
    with Pipes(tmp_path, mixed[0].config, *options) as gateway:
        gateway.initialize()
        assert until(lambda: "calc__add" in gateway.tools())
        assert not [name for name in gateway.tools() if not name.startswith(("calc__", "plain__"))]
        assert set(gateway.status()) == {"calc", "plain"}


def portico(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        portico_command(home, *words), capture_output=True, text=True, timeout=WAIT_S, check=False
    )


def test_commands_know_components(workshop: Workshop) -> None:
    inside = {"path": "calc.py", "in_process": True, "title": "Inside"}
    workshop.write({"calc": {"path": "calc.py"}, "inside": inside})
    home, config = workshop.home, ("--config", str(workshop.config))
    called = portico(home, "call", *config, "calc__add", '{"a": 2, "b": 3}')
    assert (called.returncode, called.stdout) == (0, "5\n"), called.stderr
    found = portico(home, "search", *config, "add two numbers").stdout
    assert "calc__add" in found
    assert "inside__add" in found
    listed = portico(home, "servers", "list", *config)
    assert f"calc  component  {workshop.folder}/calc.py  not running" in listed.stdout
    tested = portico(home, "servers", "test", *config)
    assert tested.returncode == 0, tested.stderr
    assert {line.split()[0] for line in tested.stdout.splitlines()} == {"calc", "inside"}
    assert portico(home, "servers", "disable", "calc", *config).stdout == "calc is now disabled\n"
    shown = portico(home, "status", *config).stdout
    assert [line.split()[:2] for line in shown.splitlines()[1:]] == [
        ["server", "kind"],
        ["inside", "component"],
        ["calc", "-"],
    ]
    again = portico(home, "servers", "add", "calc", *config, "ls")
    assert "calc already exists" in again.stderr
    assert portico(home, "servers", "remove", "calc", *config).returncode == 0
    assert "calc" not in workshop.config.read_text().replace("calc.py", "")


FAILING = {
    "raises": ("1 / 0\n", "raises.py:1: ZeroDivisionError: division by zero"),
    "lacks": ("\nimport no_such_module\n", "lacks.py:2: cannot import no_such_module"),
    "exits": ("import sys\nsys.exit('no licence')\n", "exits.py:2: the import exited: no licence"),
    "empty": ("x = 1\n", "contains neither a Server nor a link"),
    "syntax": ("def (:\n", "syntax.py:1: SyntaxError: invalid syntax"),
}


@pytest.mark.parametrize("in_process", [False, True], ids=["own process", "in process"])
def test_an_import_that_fails_stops_only_its_component(
    workshop: Workshop, in_process: bool
) -> None:
    for name, (text, _) in FAILING.items():
        workshop.file(f"{name}.py", text)
    components: dict[str, Any] = {
        name: {"path": f"{name}.py", "in_process": in_process} for name in FAILING
    }
    components["gone"] = {"path": "gone.py"}
    workshop.write({"calc": {"path": "calc.py"}, **components})
    with Pipes(workshop.home, workshop.config) as gateway:
        gateway.initialize()
        assert gateway.said("calc__add", a=2, b=3) == "5"
        gateway.said("refresh_tools")
        status = gateway.status()
        for name, (_, words) in FAILING.items():
            assert words in status[name]["error"], name
            assert words in str(gateway.call(f"{name}__tool")), name
        assert "gone.py: No such file" in status["gone"]["error"]
        assert gateway.said("calc__add", a=2, b=3) == "5"


@pytest.mark.parametrize("in_process", [False, True], ids=["own process", "in process"])
def test_an_import_that_hangs_is_given_up(workshop: Workshop, in_process: bool) -> None:
    workshop.file("hangs.py", "import time\nprint('dialing', flush=True)\ntime.sleep(1000)\n")
    hangs = {"path": "hangs.py", "in_process": in_process, "timeouts": {"init": 2}}
    workshop.write({"calc": {"path": "calc.py"}, "hangs": hangs})
    with Pipes(workshop.home, workshop.config) as gateway:
        gateway.initialize()
        assert gateway.said("calc__add", a=2, b=3) == "5"
        assert until(lambda: "within 2 s" in gateway.status()["hangs"]["error"])
        assert "within 2 s" in str(gateway.call("hangs__tool"))
        if not in_process:  # its last output is part of the reason
            assert "dialing" in gateway.status()["hangs"]["error"]


def test_a_component_that_crashes_is_restarted(workshop: Workshop) -> None:
    workshop.file("forks.py", FORKS)
    workshop.write({"forks": {"path": "forks.py"}, "calc": {"path": "calc.py"}})
    with Pipes(workshop.home, workshop.config) as gateway:
        gateway.initialize()
        before = gateway.said("forks__pid")
        crashed = gateway.call("forks__crash")
        assert "forks" in str(crashed)
        assert until(lambda: _other_pid(gateway, before))
        assert gateway.said("calc__add", a=2, b=3) == "5"


def _other_pid(gateway: Pipes, before: str) -> bool:
    result = gateway.call("forks__pid").get("result", {})
    return bool(result) and not result.get("isError") and text_in(result) != before


@pytest.mark.parametrize("over", ["stdio", "http"])
def test_no_component_survives_the_sudden_end_of_its_gateway(workshop: Workshop, over: str) -> None:
    workshop.file("forks.py", FORKS)
    workshop.write({"forks": {"path": "forks.py"}, "calc": {"path": "calc.py"}})
    http = ("--http", "127.0.0.1:0", "--auth", "none")
    words = serve_command(workshop.home, workshop.config, *(http if over == "http" else ()))
    # Not in a block of `Pipes`, which would end all by itself.
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as window:
        forked = workshop.folder / "forks.pid"
        assert until(lambda: forked.exists() and bool(forked.read_text()))
        owners = {int(path.stem) for path in (workshop.home / "state/control").glob("*.sock")}
        kin = {int(forked.read_text())} | {pid for one in owners for pid in descendants(one)}
        assert alive(kin)
        window.kill()  # else it would start the next owner
        for owner in owners - {window.pid}:
            os.kill(owner, signal.SIGKILL)
        window.communicate()
    assert until(lambda: not alive(kin)), "a component's process survived"
