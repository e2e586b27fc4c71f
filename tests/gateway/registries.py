"""Gateways over servers of this very process, which can be made to fail."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from portico import Server
from portico.core.config.schema import Config, Gateway
from portico.core.config.schema import ServerEntry as Entry
from portico.core.model.context import Context
from portico.core.model.errors import TargetError
from portico.core.model.message import Request
from portico.core.model.offer import Offer
from portico.core.model.session import Session
from portico.core.model.version import BY_TEXT
from portico.core.protocol.inbound import read
from portico.edge.transport.client_connection import Connection
from portico.gateway.members.member_kinds import MemberEnvironment, no_history
from portico.gateway.registry.registry import Registry
from portico.gateway.search.index_builder import Tools
from portico.gateway.search.searcher import Searcher
from portico.library.chain.endpoint import ChainEndpoint
from portico.search import Hit, ToolIndex
from portico.upstream.wires.memory_wire import MemoryWire, Send
from portico.upstream.wires.wire import Address, Outgoing, Receiver

LEGACY, MODERN = "2025-11-25", "2026-07-28"
_META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
}


class _Down(MemoryWire):
    """A wire to a server that cannot be started."""

    def __init__(self, name: str) -> None:
        super().__init__(lambda send: None)  # type: ignore[arg-type, return-value]
        self._name = name

    async def open(self, receiver: Receiver) -> None:
        raise TargetError(f"{self._name} is down", kind="start", server=self._name)


class Prompt(MemoryWire):
    """A wire that sends without waiting, as that to a child does."""

    def send_now(self, message: Outgoing) -> bool:
        self.deliver(message)
        return True


@dataclass
class World:
    """The servers there are, and which of them cannot be reached."""

    servers: dict[str, Server] = field(default_factory=dict)
    down: set[str] = field(default_factory=set)
    opened: list[str] = field(default_factory=list)
    """Each start of a server."""
    wire: type[MemoryWire] = MemoryWire

    def address(self, entry: Entry, heard: object) -> Address:
        """Where a server of the config is."""
        return _At(entry.name, self)


@dataclass(frozen=True)
class _At:
    name: str
    world: World

    def wire(self) -> MemoryWire:
        server = self.world.servers.get(self.name)
        if server is None or self.name in self.world.down:
            return _Down(self.name)
        self.world.opened.append(self.name)

        def connect(send: Send) -> Connection:
            return Connection(server.endpoint(), send)

        return self.world.wire(connect)

    def older(self) -> None:
        return


class Shelf:
    """Offer kept in memory, as a disk would keep them."""

    def __init__(self) -> None:
        self.kept: dict[str, Offer] = {}

    def load(self, key: str) -> Offer | None:
        return self.kept.get(key)

    def latest(self, key: str) -> Offer | None:
        owner = key.partition("-")[0]
        found = [facts for name, facts in self.kept.items() if name.startswith(f"{owner}-")]
        return found[-1] if found else None

    def save(self, key: str, facts: Offer) -> bool:
        self.kept[key] = facts
        return True


class Words(Searcher):
    """A plain search."""

    def __init__(self) -> None:
        self.index = ToolIndex.build([])
        self.versions: list[str] = []

    def use(self, version: str, tools: Tools, first: Tools | None = None) -> None:
        self.versions.append(version)
        self.index = ToolIndex.build(list(tools()))

    async def search(
        self,
        query: str,
        limit: int,
        server: str | None = None,
        servers: frozenset[str] | None = None,
    ) -> list[Hit]:
        hits = self.index.search(query, 1000, server)
        return [hit for hit in hits if servers is None or hit.server in servers][:limit]

    @property
    def is_behind(self) -> bool:
        return False

    def status(self) -> dict[str, Any]:
        return {}

    async def close(self) -> None:
        self.index = ToolIndex.build([])


def config(*names: str, gateway: Gateway | None = None, **more: Any) -> Config:
    """A config with these servers."""
    servers = {name: Entry(name=name, command=name) for name in names}
    fields = {"path": "portico.toml", "gateway": gateway or Gateway(), "servers": servers, **more}
    return Config(**fields)


@contextlib.asynccontextmanager
async def registry(
    world: World, config: Config, *, memory: Shelf | None = None, **more: Any
) -> AsyncGenerator[Registry, None]:
    """A gateway over these servers, which were not asked yet."""
    around = MemberEnvironment(
        info={"name": "portico", "version": "1.0"},
        memory=memory,
        secret=b"s" * 32,
        report=more.pop("report", lambda _: None),
        on_stderr=lambda server, line: None,
        address_of=world.address,
        gateway=more.pop("id", ""),
        folder=more.pop("home", ""),
        history=more.pop("history", no_history),
    )
    registry = Registry(
        config,
        around,
        version="1.0",
        searcher=more.pop("searcher", Words),
        report_failure=more.pop("failed", _fail),
        record_call=more.pop("witness", lambda *_: None),
        **more,
    )
    try:
        yield registry
    finally:
        await registry.close()


def _fail(request: Request, error: BaseException) -> None:
    raise error


class Client:
    """One client at an endpoint, in either era."""

    def __init__(self, endpoint: ChainEndpoint, version: str = LEGACY) -> None:
        self.endpoint = endpoint
        self.heard: list[dict[str, Any]] = []
        self.version = version
        self.session = Session(self._hear)
        self._ids = 0

    def _hear(self, message: bytes) -> None:
        self.heard.append(msgspec.json.decode(message))

    async def notify(self, message: bytes) -> None:
        self._hear(message)

    async def ask(self, method: str, params: bytes) -> bytes:
        raise NotImplementedError

    async def closed(self) -> None:
        await asyncio.Event().wait()

    async def hello(self) -> dict[str, Any]:
        """Shake hands, as a legacy client does."""
        params = {
            "protocolVersion": self.version,
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        }
        return await self.request("initialize", params)

    async def request(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """The whole answer."""
        self._ids += 1
        sent = dict(params or {})
        if self.version == MODERN:
            sent["_meta"] = {**_META, **sent.get("_meta", {})}
        message = {"jsonrpc": "2.0", "id": self._ids, "method": method, "params": sent}
        assumed = self.session.version or BY_TEXT[LEGACY]
        request = read(msgspec.json.encode(message), assumed, None)
        assert isinstance(request, Request), request
        response = await self.endpoint.handle(request, self.context())
        return response.decode()

    def context(self) -> Context:
        """The context of a request."""
        return Context(session=self.session, peer=self)

    async def result(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """The result, which there must be."""
        answer = await self.request(method, params)
        assert "result" in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    async def call(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """The result of a tool."""
        return await self.result("tools/call", {"name": tool, "arguments": arguments})

    async def said(self, tool: str, /, **arguments: Any) -> str:
        """The text of a tool's result."""
        blocks = (await self.call(tool, **arguments))["content"]
        return "\n".join(block.get("text", "") for block in blocks)

    async def names(self, kind: str = "tools") -> list[str]:
        """What a list shows."""
        method = {"templates": "resources/templates"}.get(kind, kind)
        field = {"templates": "resourceTemplates"}.get(kind, kind)
        key = {"resources": "uri", "templates": "uriTemplate"}.get(kind, "name")
        return [item[key] for item in (await self.result(f"{method}/list"))[field]]
