"""The library in an environment with msgspec and jsonschema-rs and nothing else."""

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from tests.support.shared import ROOT

PROGRAM = """
import asyncio
from importlib.util import find_spec

from portico import Context, Server

for name in ("cryptography", "httptools", "prometheus_client", "rich", "uvicorn", "uvloop"):
    assert find_spec(name) is None, name
server = Server("small")


@server.tool
def add(a: int, b: int) -> int:
    return a + b


@server.tool
async def hello(*, context: Context) -> str:
    return (await context.elicit("Name?", {"type": "object", "properties": {}})).action


META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "c", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
}
HOST = {"type": "http", "method": "GET", "path": "/healthz", "headers": [(b"host", b"localhost")]}


async def call(name, **arguments):
    params = {"name": name, "arguments": arguments, "_meta": META}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    print((await server.handle(message)).decode()["result"]["content"][0]["text"])


async def main():
    await call("add", a=1, b=2)
    await call("add", a="x", b=2)
    await call("hello")

    async def send(message):
        print(message.get("status") or message["body"].decode())

    await server.asgi()(HOST, None, send)


asyncio.run(main())
"""


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """A Python with two packages, and this checkout."""
    venv.create(tmp_path, symlinks=True)
    installed = Path(sysconfig.get_path("platlib"))
    packages = Path(
        sysconfig.get_path("platlib", vars={"base": str(tmp_path), "platbase": str(tmp_path)})
    )
    for name in ("msgspec", "jsonschema_rs"):
        (packages / name).symlink_to(installed / name)
    (packages / "portico.pth").write_text(str(ROOT / "src"))
    return tmp_path / "bin" / "python"


def test_a_server_answers_with_two_packages(python: Path) -> None:
    command = [str(python), "-W", "error", "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "3",
        'add: a: expected integer, got string "x"',
        "hello failed: ImportError: the state of a question is sealed with a package that is not "
        "installed: run `pip install cryptography`",
        "200",
        '{"status":"ok"}',
    ]


def test_it_is_the_python_that_runs_the_tests(python: Path) -> None:
    version = [str(python), "-c", "import sys; print(sys.version)"]
    assert subprocess.check_output(version, text=True).strip() == sys.version
