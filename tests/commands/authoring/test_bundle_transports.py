"""The transport of a bundle: as composed, or another that is named at the start."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands.authoring.composing import RUN, call, composed, done, stranger
from tests.support.running import WAIT_S, free_port
from tests.wrap.standing import until


class Server:
    """A command that serves, until the block ends."""

    def __init__(self, folder: Path, *words: str | Path) -> None:
        self.command = [sys.executable, "-m", "portico", "run", *map(str, words)]
        self.environ = {**os.environ, "PORTICO_HOME": str(folder.parent / "home")}

    def __enter__(self) -> "Server":
        self.process = subprocess.Popen(
            self.command, env=self.environ, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(WAIT_S)


def test_the_transport_is_the_composed_one_unless_another_is_named(folder: Path) -> None:
    port, other = free_port(), free_port()
    bundle = composed(folder, folder / "calc.py", "-t", f"http:{port}")
    with Server(folder, bundle) as server:
        until(lambda: _is_listening(port), "it does not listen")
        assert call(folder, f"http://127.0.0.1:{port}/mcp", "add", a=1, b=2) == "3"
        assert call(folder, " ".join([*server.command, "--stdio"]), "add", a=1, b=2) == "3"
    with Server(folder, bundle, "--http", str(other)):
        until(lambda: _is_listening(other), "it does not listen on the port that was named")
        assert not _is_listening(port)


def _is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


OWN = """
import asyncio, json, os

async def serve(endpoint, address, stop, drain_s):
    server = await asyncio.start_server(lambda *_: None, *address.split(":"))
    with open(MARK, "w") as file:
        file.write(f"{NAME} {os.path.basename(__file__)} {address}")
    async with server:
        await stop.wait()

other = serve
"""


def transport(folder: Path, mark: Path, name: str) -> Path:
    """A transport of one's own, which writes where it listens."""
    path = folder / f"{name}.py"
    path.write_text(OWN.replace("MARK", repr(str(mark))).replace("{NAME}", name))
    return path


def test_a_composed_transport_goes_along(folder: Path, tmp_path: Path) -> None:
    mark, address = tmp_path / "served", f"127.0.0.1:{free_port()}"
    own = transport(folder, mark, "own")
    bundle = composed(folder, folder / "calc.py", "--transport", own)
    found = json.loads(done(folder, "inspect", bundle, "--json"))
    assert found["transport"] == "parts/0/own.py"
    assert [one["path"] for one in found["wishes"]] == ["calc", "transport"]
    away = stranger(folder)
    done(away, "approve", "-y", away / "one.portico")
    with Server(away, away / "one.portico", "--listen", address):
        until(mark.exists, "the composed transport is not served")
        until(lambda: mark.read_text() == f"own own.py {address}", "it listens elsewhere")


@pytest.mark.parametrize("variable", ["", ":other"])
def test_a_composed_transport_gives_way_to_one_that_is_named(
    folder: Path, tmp_path: Path, variable: str
) -> None:
    mark, port = tmp_path / "served", free_port()
    address = f"127.0.0.1:{port}"
    own, other = transport(folder, mark, "own"), transport(folder, mark, "better")
    bundle = composed(folder, folder / "calc.py", "--transport", f"{own}{variable}")
    with Server(folder, bundle, "--transport", f"{other}{variable}", "--listen", address):
        until(mark.exists, "the transport that was named is not served")
        until(lambda: mark.read_text() == f"better better.py {address}", "it listens elsewhere")
    mark.unlink()
    assert call(folder, f"{RUN} {bundle} --stdio", "add", a=1, b=2) == "3"
    with Server(folder, bundle, "--http", str(port)):
        until(lambda: _is_listening(port), "it does not listen")
        assert call(folder, f"http://127.0.0.1:{port}/mcp", "add", a=1, b=2) == "3"
    assert not mark.exists()


def test_bundles_are_not_watched_and_that_is_reported(folder: Path) -> None:
    bundle = composed(folder, folder / "calc.py")
    said = done(folder, "run", "--watch", bundle)
    assert "--watch does not reload bundles; name the components that one is composed of" in said


def test_an_address_needs_a_transport_that_listens_on_it(folder: Path) -> None:
    bundle = composed(folder, folder / "calc.py")
    for words in ((), ("--http", "0"), ("--stdio",)):
        said = done(folder, "run", bundle, "--listen", "127.0.0.1:0", *words, code=2)
        assert "--listen is the address of a --transport; for HTTP use --http" in said
