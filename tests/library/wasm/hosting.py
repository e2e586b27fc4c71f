"""Workers of real components, and Portico's commands on them."""

import asyncio
import os
import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from portico.core.config.component_grants import ComponentGrants, GuestLimits
from portico.core.config.schema import ComponentEntry
from portico.core.state.user_secret import FILE_NAME, user_secret
from portico.edge.client.client import Client
from portico.edge.client.connect import connect
from portico.library.components.wasm_process import settings_of, wasm_server
from portico.library.wasm.compiled_code import CompiledCode
from portico.library.wasm.settings import VARIABLE, HostSettings
from portico.upstream.connections.handshake import HandshakeLimits
from portico.upstream.wires.child_wire import ChildWire, Command
from tests.library.wasm import building

OWN = building.WIT / "own"
WAIT_S = 120.0
"""A compiler may be slow on a busy machine."""


def own_guest() -> Path:
    """Return a component of all our interfaces."""
    return building.javascript("own.js", OWN, "everything")


def attacking_guest() -> Path:
    """Return a component that misbehaves."""
    return building.javascript("attacks.js", OWN, "tools")


def home(folder: Path) -> Path:
    """Return a fresh home of Portico, in which the components of the tests are compiled."""
    made = folder / "home"
    (made / "cache").mkdir(parents=True, exist_ok=True)
    compiled, secret = building.CACHE / "compiled", building.CACHE / "state"
    compiled.mkdir(exist_ok=True, mode=0o700)
    user_secret(secret)
    (made / "state").mkdir(mode=0o700, exist_ok=True)
    shutil.copy(secret / FILE_NAME, made / "state" / FILE_NAME)
    if not (made / "cache" / "wasm").exists():
        (made / "cache" / "wasm").symlink_to(compiled)
    return made


def settings(path: Path, folder: Path, **more: Any) -> HostSettings:
    """Return the settings of a worker; `more` are granted, limits, or fields of the settings."""
    place = home(folder)
    known = settings_of(wasm_server(ComponentEntry(name="guest", path=str(path))))
    limits = {key: more.pop(key) for key in GuestLimits.__struct_fields__ if key in more}
    granted = {key: more.pop(key) for key in ComponentGrants.__struct_fields__ if key in more}
    return replace(
        known,
        cache=str(place / "cache" / "wasm"),
        state=str(place / "state"),
        granted=ComponentGrants(limits=GuestLimits(**limits), **granted),
        **more,
    )


def command(known: HostSettings) -> Command:
    """Return the command of a worker."""
    server = wasm_server(ComponentEntry(name=known.name, path=known.file))
    return Command(
        (server.command, *server.args),
        title=known.name,
        env={VARIABLE: known.encode()},
        cwd=os.sep,
        environment={},
    )


@asynccontextmanager
async def hosted(path: Path, folder: Path, **more: Any) -> AsyncGenerator[Client, None]:
    """A client of a worker that hosts this file."""
    limits = HandshakeLimits(init_s=WAIT_S, list_s=WAIT_S, call_s=WAIT_S)
    address = command(settings(path, folder, **more))
    client = await connect(address, era="modern", limits=limits)
    async with client:
        yield client


async def compiled(known: HostSettings) -> None:
    """Compile the component of these settings, which may take longer than a client waits."""
    code = CompiledCode(known.cache, known.state)
    data = await asyncio.to_thread(Path(known.file).read_bytes)
    if await asyncio.to_thread(code.load, data) is None:
        await code.compile(data)


def process_of(client: Client) -> int:
    """Return the process id of a worker."""
    wire = client.exchange.wire
    assert isinstance(wire, ChildWire)
    assert wire.process is not None
    return wire.process.pid


async def said(client: Client, tool: str, /, **arguments: Any) -> str:
    """Return the text of a result; one that failed begins with `failed: `."""
    result = await client.call_tool(tool, arguments)
    text = str(result["content"][0]["text"])
    return f"failed: {text}" if result.get("isError") else text


def trying_guest() -> Path:
    """Return a component in Python that tries all of WASI, and every function of the host."""
    return building.python("attacks.py", OWN, "asking", stub_wasi=False)
