"""The WebSocket transport of `examples/` in a real process, and a proxy that listens."""

import contextlib
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect
from websockets.sync.connection import Connection
from websockets.sync.server import Server, ServerConnection, serve
from websockets.typing import Subprotocol

from tests.support.oracle import WireOracle
from tests.support.running import WAIT_S, Child, portico_run
from tests.support.shared import ROOT

EXAMPLE = ROOT / "examples" / "websocket.py"
MCP = Subprotocol("mcp")
_SERVING = re.compile(r"serving (ws://\S+)")


class WebSocketServer(Child):
    """Components served over WebSocket, on a port of their own."""

    def __init__(self, component: Path, *options: str) -> None:
        over = ("--transport", str(EXAMPLE), "--listen", "0")
        super().__init__(portico_run(component, *over, *options))
        self.url = ""
        """Where it listens."""
        try:
            self._wait_until_ready()
        except BaseException:
            self.stop()
            raise

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + WAIT_S
        while not (found := _SERVING.search(self.stderr())):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"it did not get ready:\n{self.stderr()}")
            time.sleep(0.02)
        self.url = found[1]


@contextlib.contextmanager
def websocket_server(component: Path, *options: str) -> Iterator[WebSocketServer]:
    """Components over WebSocket for as long as the block runs."""
    server = WebSocketServer(component, *options)
    try:
        yield server
    finally:
        server.stop()


class SocketProxy:
    """Passes frames on unchanged; each connection's messages are checked by an oracle."""

    def __init__(self, server: WebSocketServer) -> None:
        self._server = server
        self._oracles: list[WireOracle] = []
        self._listener: Server = serve(self._talk, "127.0.0.1", 0, subprotocols=[MCP])
        self.url = f"ws://127.0.0.1:{self._listener.socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._listener.serve_forever, daemon=True)
        self._thread.start()

    @property
    def checked(self) -> int:
        """How many messages were held against a schema so far."""
        return sum(oracle.checked for oracle in self._oracles)

    @property
    def problems(self) -> list[str]:
        """The violations that the oracles found."""
        return [problem for oracle in self._oracles for problem in oracle.problems]

    def close(self) -> None:
        """End all connections."""
        self._listener.shutdown()
        self._thread.join(WAIT_S)

    def _talk(self, client: ServerConnection) -> None:
        oracle = WireOracle()
        self._oracles.append(oracle)
        with connect(self._server.url, subprotocols=[MCP], proxy=None) as server:

            def back() -> None:
                with contextlib.suppress(ConnectionClosed):  # the client has left
                    for message in _messages(server):
                        oracle.server_sent(message)
                        client.send(message, text=True)
                client.close()

            returning = threading.Thread(target=back, daemon=True)
            returning.start()
            with contextlib.suppress(ConnectionClosed):  # the server has ended
                for message in _messages(client):
                    oracle.client_sent(message)
                    server.send(message, text=True)
            server.close()
            returning.join(WAIT_S)


def _messages(socket: Connection) -> Iterator[bytes]:
    with contextlib.suppress(ConnectionClosed):
        while True:
            yield socket.recv(decode=False)


@contextlib.contextmanager
def recorded_websocket_server(component: Path) -> Iterator[SocketProxy]:
    """A component over WebSocket behind a proxy that listens."""
    with websocket_server(component) as server:
        proxy = SocketProxy(server)
        try:
            yield proxy
        finally:
            proxy.close()
