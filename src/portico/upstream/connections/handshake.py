"""The handshake with a server: probes the era as the spec defines, with the allowed fallbacks."""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct, field

from portico.core.model.defaults import CALL_S, INIT_S, LIST_S
from portico.core.model.errors import (
    HEADER_MISMATCH,
    MISSING_CAPABILITY,
    UNSUPPORTED_VERSION,
    McpError,
    TargetError,
)
from portico.core.model.version import BY_TEXT, LATEST_LEGACY, MODERN, Version
from portico.core.protocol.codec import encode
from portico.core.protocol.eras import CAPABILITIES_KEY, INFO_KEY, SERVER_INFO_KEY, VERSION_KEY
from portico.core.protocol.ladder import VERSION_HEADER
from portico.upstream.connections.request_headers import request_headers
from portico.upstream.process.install_commands import Install
from portico.upstream.rpc.exchange import Exchange, OnNotification, Serve
from portico.upstream.rpc.rpc_error import HttpError, one_line
from portico.upstream.wires.wire import LOGIN, Address, ChildWork, Wire, quoted_stderr

if TYPE_CHECKING:
    from portico.upstream.process.process_work import ProcessWork

LEGACY_FIRST = "legacy-first"
"""An era beside `modern`, `legacy` and `auto`: tries both like `auto`, but legacy first."""
_UNREACHABLE_KINDS = ("start", "network", "timeout", "exited", LOGIN)
"""Failures that do not depend on the era."""
_UNSUPPORTED_STATUSES = (400, 404, 405)
"""The statuses that a server of the old transport returns to a POST (backward compatibility)."""
QUIET_S = 90.0
"""An installer that has done nothing for this long hangs. npm pauses for up to 60 s: before it
tries a download again, and for the lock of another npm that was killed."""
_LOOK_S = 5.0
"""How often to look whether an installer works."""


class HandshakeLimits(Struct, frozen=True):
    """The timeouts of one server, in seconds."""

    probe_s: float = 3.0
    """How long a server may take to answer the probe before the legacy handshake starts too."""
    init_s: float = INIT_S
    install: Install | None = None
    """Set for a command that installs its server first: then `init_s` does not apply."""
    list_s: float = LIST_S
    call_s: float = CALL_S
    """Restarted by each progress notification."""

    @property
    def start_s(self) -> float:
        """How long the whole start may take."""
        return self.init_s if self.install is None else max(self.init_s, self.install.within_s)


class Introduction(Struct, frozen=True):
    """The server's description of itself in the handshake."""

    version: Version
    info: dict[str, Any]
    capabilities: dict[str, Any]
    instructions: str = ""
    raw: bytes = b""
    """The result of `initialize` or `server/discover`, byte for byte."""


class ClientHello(Struct, frozen=True):
    """The client's side of the handshake, and its handlers for the server's messages."""

    info: Mapping[str, Any]
    capabilities: Mapping[str, Any]
    serve: Serve
    on_notification: OnNotification
    limits: HandshakeLimits = HandshakeLimits()
    era: str = "auto"


async def open_exchange(address: Address, hello: ClientHello) -> tuple[Exchange, Introduction]:
    """Open an exchange with a server, and return its introduction too; raises TargetError."""
    try:
        return await _HandshakeAttempt(address, hello).open()
    except McpError as error:
        why = f"{address.name} refused the handshake: {one_line(error)} ({error.code})"
        raise TargetError(why, kind="refused", server=address.name) from None


class _Handshake(Struct):
    protocolVersion: str  # noqa: N815  (a field of the wire)
    capabilities: dict[str, Any] = {}
    serverInfo: dict[str, Any] = {}  # noqa: N815  (a field of the wire)
    instructions: str | None = None


class _Discovery(Struct):
    supportedVersions: list[str]  # noqa: N815  (a field of the wire)
    capabilities: dict[str, Any] = {}
    instructions: str | None = None
    meta: dict[str, Any] = field(default_factory=dict, name="_meta")


# Accept numbers that no float can hold.
_handshake_of = msgspec.json.Decoder(_Handshake, float_hook=float).decode
_discovery_of = msgspec.json.Decoder(_Discovery, float_hook=float).decode


class _HandshakeAttempt:
    """One attempt at a handshake, over several wires in turn if necessary."""

    def __init__(self, address: Address, hello: ClientHello) -> None:
        self._address = address
        self._hello = hello
        self._limits = hello.limits
        self._exchange: Exchange | None = None

    async def open(self) -> tuple[Exchange, Introduction]:
        """Return the exchange over the first wire on which the handshake succeeds."""
        if self._limits.install is None:
            return await self._open()
        try:
            async with asyncio.timeout(QUIET_S) as limit:
                watching = asyncio.create_task(self._watch(limit))
                try:
                    return await self._open()
                finally:
                    watching.cancel()
        except TimeoutError as late:
            if not limit.expired():
                raise
            notes: list[str] = getattr(late.__cause__, "__notes__", [])
            why = f"has done nothing for {QUIET_S:g} s{quoted_stderr(''.join(notes))}"
            raise self._protocol_error(why, "timeout") from None

    async def _watch(self, limit: asyncio.Timeout) -> None:
        """Put off the limit as long as the installer works."""
        loop = asyncio.get_running_loop()
        known: ProcessWork | None = None
        while True:
            await asyncio.sleep(_LOOK_S)
            wire: object = None if self._exchange is None else self._exchange.wire
            work = await wire.child_work() if isinstance(wire, ChildWork) else None
            if work is None or known is None or work.differs(known):
                known = work
                limit.reschedule(loop.time() + QUIET_S)

    async def _open(self) -> tuple[Exchange, Introduction]:
        era = self._hello.era
        try:
            exchange = await self._connect(self._address.wire())
            if era == LEGACY_FIRST:
                exchange, server = await self._legacy_first(exchange)
            else:
                found = await self._probe(exchange, era) if era != "legacy" else None
                exchange, server = await self._fall_back(exchange, found)
        except BaseException as error:
            if self._exchange is not None:
                error.add_note(self._exchange.wire.last_output())  # for a start that timed out
                await self._exchange.close()
            raise
        exchange.modern = server.version.modern
        exchange.wire.settle(server.version)
        return exchange, server

    async def _connect(self, wire: Wire) -> Exchange:
        if self._exchange is not None:
            await self._exchange.close()
        hello = self._hello
        self._exchange = Exchange(wire, self._address.name, hello.serve, hello.on_notification)
        await self._exchange.open()
        return self._exchange

    async def _legacy_first(self, exchange: Exchange) -> tuple[Exchange, Introduction]:
        """Try the legacy handshake; a server that rejects it may be modern."""
        try:
            return exchange, await self._handshake(exchange)
        except (McpError, TargetError) as error:
            if isinstance(error, TargetError) and error.kind in _UNREACHABLE_KINDS:
                raise
            if exchange.failure is not None:
                exchange = await self._connect(self._address.wire())
            server = await self._discover(exchange)
            if server is not None:
                return exchange, server
            if self._address.older() is None:
                raise
        return await self._fall_back(exchange, None)

    async def _fall_back(
        self, exchange: Exchange, found: Introduction | None
    ) -> tuple[Exchange, Introduction]:
        """Try the legacy handshake, and the older transport if that fails too."""
        if found is not None:
            return exchange, found
        if exchange.failure is not None:  # some legacy servers exit on server/discover
            exchange = await self._connect(self._address.wire())
        try:
            return exchange, await self._handshake(exchange)
        except (HttpError, TargetError) as error:
            older = self._address.older()
            if older is None or not _is_unsupported(error):
                raise
            try:
                exchange = await self._connect(older)
            except TargetError as other:
                if other.kind == LOGIN:
                    raise
                raise error from None  # the error of the current transport is more useful
        return exchange, await self._handshake(exchange)

    async def _probe(self, exchange: Exchange, era: str) -> Introduction | None:
        """Return the introduction of a modern server, or of a silent one that accepts `initialize`.

        None means legacy. A server that does not answer may be slow or may drop unknown requests,
        so after a while the legacy handshake starts too, and the first valid response decides.
        """
        if era == "modern":
            return await self._discover(exchange, strict=True)
        probe = asyncio.create_task(self._discover(exchange))
        try:
            await asyncio.wait({probe}, timeout=self._limits.probe_s)
            if probe.done():
                return probe.result()
            return await self._race(probe, asyncio.create_task(self._handshake(exchange)))
        finally:
            await _stop(probe)

    async def _race(
        self,
        probe: "asyncio.Task[Introduction | None]",
        handshake: "asyncio.Task[Introduction]",
    ) -> Introduction | None:
        try:
            running: set[asyncio.Task[Any]] = {probe, handshake}
            while running:
                done, running = await asyncio.wait(running, return_when="FIRST_COMPLETED")
                for task in done:
                    if task.exception() is None and task.result() is not None:
                        server: Introduction = task.result()
                        return server
            return None if _is_unsupported(handshake.exception()) else handshake.result()
        finally:
            await _stop(handshake)

    async def _discover(self, exchange: Exchange, strict: bool = False) -> Introduction | None:
        """Send server/discover; None if the response is not that of a modern server."""
        version = MODERN[-1]
        try:
            try:
                raw = await self._send_discover(exchange, version)
            except McpError as error:
                if error.code != UNSUPPORTED_VERSION:
                    raise
                version = self._another_version(error)
                raw = await self._send_discover(exchange, version)
            return self._discovered(raw, version)
        except _NotModern as reason:
            if strict:
                raise self._protocol_error(f"is not modern: {reason}", "version") from None
            return None
        except (McpError, TargetError) as error:
            if strict or _is_inconclusive(error):
                raise
            return None

    async def _send_discover(self, exchange: Exchange, version: Version) -> bytes:
        meta = modern_meta(version, self._hello.info, self._hello.capabilities)
        method = "server/discover"
        return await exchange.request(
            exchange.next_id(),
            method,
            encode({"_meta": meta}),
            timeout=self._limits.start_s,
            headers=request_headers(method, {}, version) if exchange.wire.has_headers else {},
            cancellable=False,
        )

    def _discovered(self, raw: bytes, version: Version) -> Introduction:
        try:
            found = _discovery_of(raw)
        except (msgspec.DecodeError, RecursionError) as error:
            raise _NotModern(f"its response to server/discover cannot be read: {error}") from None
        if version.text not in found.supportedVersions:
            raise _NotModern(f"it supports only {_listed(found.supportedVersions)}")
        info = found.meta.get(SERVER_INFO_KEY)
        info = info if isinstance(info, dict) else {}
        return Introduction(version, info, found.capabilities, found.instructions or "", raw)

    def _another_version(self, error: McpError) -> Version:
        """Return the version to retry with, of those that the server supports."""
        data = error.data if isinstance(error.data, dict) else {}
        offered = data.get("supported")
        listed = offered if isinstance(offered, list) else []
        supported = [text for text in listed if isinstance(text, str)]
        known = [BY_TEXT[text] for text in supported if text in BY_TEXT]
        for version in reversed(MODERN):
            if version in known:
                return version
        if known:
            raise _NotModern(f"it supports only {_listed(supported)}")
        found = f"supports only {_listed(supported)}" if supported else "does not list its versions"
        why = f"{found}; Portico supports {_listed(list(BY_TEXT))}"
        raise self._protocol_error(why, "version")

    async def _handshake(self, exchange: Exchange) -> Introduction:
        """Perform the legacy handshake."""
        params = {
            "protocolVersion": LATEST_LEGACY.text,
            "capabilities": self._hello.capabilities,
            "clientInfo": self._hello.info,
        }
        raw = await exchange.request(
            exchange.next_id(),
            "initialize",
            encode(params),
            timeout=self._limits.start_s,
            cancellable=False,  # initialize must not be cancelled (2025-11-25, cancellation)
        )
        try:
            found = _handshake_of(raw)
        except (msgspec.DecodeError, RecursionError) as error:
            why = f"sent an unreadable response to initialize: {error}"
            raise self._protocol_error(why, "protocol") from None
        version = BY_TEXT.get(found.protocolVersion)
        if version is None or version.modern:
            answer = f"returned version {found.protocolVersion[:40]!r}"
            raise self._protocol_error(f"{answer}, which Portico does not support", "version")
        await exchange.notify("notifications/initialized", headers={VERSION_HEADER: version.text})
        instructions = found.instructions or ""
        return Introduction(version, found.serverInfo, found.capabilities, instructions, raw)

    def _protocol_error(self, why: str, kind: str) -> TargetError:
        return TargetError(f"{self._address.name} {why}", kind=kind, server=self._address.name)


class _NotModern(Exception):
    """The server answered, but is not of the modern era."""


def _is_inconclusive(error: McpError | TargetError) -> bool:
    """True for a modern server's error, a missing authorization, and an unreachable server."""
    if isinstance(error, McpError):
        return error.code in (HEADER_MISMATCH, MISSING_CAPABILITY)
    status = error.details.get("status")
    if status is not None:
        return status in (401, 403)
    return error.kind in ("network", "start", "version", LOGIN)


def _listed(versions: list[str]) -> str:
    return ", ".join(version[:20] for version in versions[:8]) or "no version"


def _is_unsupported(error: BaseException | None) -> bool:
    """True for the rejection of a POST by a server that may have the older transport."""
    details = error.details if isinstance(error, TargetError) else {}
    status = error.status if isinstance(error, HttpError) else details.get("status")
    return status in _UNSUPPORTED_STATUSES


async def _stop(task: "asyncio.Task[Any]") -> None:
    task.cancel()
    await asyncio.wait({task})


def modern_meta(
    version: Version, info: Mapping[str, Any], capabilities: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the `_meta` of every modern request, which describes its sender."""
    return {VERSION_KEY: version.text, INFO_KEY: info, CAPABILITIES_KEY: capabilities}
