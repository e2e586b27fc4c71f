"""Opens a conversation: probes the era as the spec says, and falls back where it may."""

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct, field

from portico.model.errors import (
    HEADER_MISMATCH,
    MISSING_CAPABILITY,
    UNSUPPORTED_VERSION,
    McpError,
    TargetError,
)
from portico.model.version import BY_TEXT, LATEST_LEGACY, MODERN, Version
from portico.protocol.codec import encode
from portico.protocol.ladder import VERSION_HEADER
from portico.upstream.answers import NO_ANSWERS, Answers
from portico.upstream.client import Client, Introduction, Limits, Log, modern_meta
from portico.upstream.exchange import Exchange, HttpError
from portico.upstream.mirror import mirrored_headers
from portico.upstream.wire import Address, Wire

ERAS = ("auto", "modern", "legacy")
ANONYMOUS = {"name": "portico", "version": "0"}
"""Who we say we are, unless a caller says it better."""
_INFO_KEY = "io.modelcontextprotocol/serverInfo"
_NOT_SPOKEN = (400, 404, 405)
"""Statuses with which a server of the old transport meets a POST (backward compatibility)."""


async def connect(
    address: Address,
    *,
    era: str = "auto",
    answers: Answers = NO_ANSWERS,
    limits: Limits | None = None,
    log: Log | None = None,
    info: Mapping[str, Any] = ANONYMOUS,
) -> Client:
    """Open a conversation with a server; raises TargetError if there is none to be had."""
    opening = _Opening(address, answers, limits or Limits(), log, info)
    try:
        return await opening.open(era)
    except McpError as error:
        raise TargetError(
            f"{address.name} refused the conversation: {error.message} ({error.code})",
            kind="refused",
            server=address.name,
        ) from None


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


class _Opening:
    """One attempt to get into conversation, over one wire after the other if need be."""

    def __init__(
        self,
        address: Address,
        answers: Answers,
        limits: Limits,
        log: Log | None,
        info: Mapping[str, Any],
    ) -> None:
        self._address = address
        self._answers = answers
        self._limits = limits
        self._log = log
        self._info = info
        self._client: Client | None = None
        self._exchange: Exchange | None = None

    async def open(self, era: str) -> Client:
        """A client over the first wire on which the two understand each other."""
        try:
            exchange = await self._dial(self._address.wire())
            server = await self._probe(exchange, era) if era != "legacy" else None
            if server is None:
                exchange, server = await self._fall_back(exchange)
        except BaseException:
            if self._exchange is not None:
                await self._exchange.close()
            raise
        exchange.modern = server.version.modern
        exchange.wire.settle(server.version)
        self._client = Client(
            exchange,
            server,
            info=self._info,
            answers=self._answers,
            limits=self._limits,
            log=self._log,
        )
        return self._client

    async def _dial(self, wire: Wire) -> Exchange:
        if self._exchange is not None:
            await self._exchange.close()
        self._exchange = Exchange(wire, self._address.name, self._answers.serve, self._noticed)
        await self._exchange.open()
        return self._exchange

    def _noticed(self, method: str, params: bytes) -> None:
        if self._client is not None:
            self._client.noticed(method, params)

    async def _fall_back(self, exchange: Exchange) -> tuple[Exchange, Introduction]:
        """Greet the legacy way; where even that is not understood, by the older transport."""
        if exchange.failure is not None:  # some legacy servers leave when asked to discover
            exchange = await self._dial(self._address.wire())
        try:
            return exchange, await self._handshake(exchange)
        except (HttpError, TargetError) as error:
            older = self._address.older()
            status = error.status if isinstance(error, HttpError) else error.details.get("status")
            if older is None or status not in _NOT_SPOKEN:
                raise
            try:
                exchange = await self._dial(older)
            except TargetError:
                raise error from None  # what the current transport met is the better reason
        return exchange, await self._handshake(exchange)

    async def _probe(self, exchange: Exchange, era: str) -> Introduction | None:
        """The server's own words if it is modern, or greeted the legacy way while it was silent.

        None says legacy. A server that does not answer may be slow or may drop what it does not
        know, so after a while it is greeted the other way too, and whichever answer is the first
        to be good decides.
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
    ) -> Introduction:
        try:
            running: set[asyncio.Task[Any]] = {probe, handshake}
            while running:
                done, running = await asyncio.wait(running, return_when="FIRST_COMPLETED")
                for task in done:
                    if task.exception() is None and task.result() is not None:
                        server: Introduction = task.result()
                        return server
            return handshake.result()
        finally:
            await _stop(handshake)

    async def _discover(self, exchange: Exchange, strict: bool = False) -> Introduction | None:
        """Ask in the modern way; None if the answer is no sign of a modern server."""
        version = MODERN[-1]
        try:
            try:
                raw = await self._ask_discover(exchange, version)
            except McpError as error:
                if error.code != UNSUPPORTED_VERSION:
                    raise
                version = self._another_version(error)
                raw = await self._ask_discover(exchange, version)
            return self._discovered(raw, version)
        except _NotModern as reason:
            if strict:
                raise self._misspoke(f"is not modern: {reason}", "version") from None
            return None
        except (McpError, TargetError) as error:
            if strict or _says_nothing_of_the_era(error):
                raise
            return None

    async def _ask_discover(self, exchange: Exchange, version: Version) -> bytes:
        meta = modern_meta(version, self._info, self._answers.capabilities)
        method = "server/discover"
        return await exchange.ask(
            exchange.next_id(),
            method,
            encode({"_meta": meta}),
            timeout=self._limits.init_s,
            headers=mirrored_headers(method, {}, version) if exchange.wire.mirrors else {},
            cancellable=False,
        )

    def _discovered(self, raw: bytes, version: Version) -> Introduction:
        try:
            found = msgspec.json.decode(raw, type=_Discovery)
        except (msgspec.DecodeError, RecursionError) as error:
            raise _NotModern(f"its answer to server/discover cannot be read: {error}") from None
        if version.text not in found.supportedVersions:
            raise _NotModern(f"it offers only {_listed(found.supportedVersions)}")
        info = found.meta.get(_INFO_KEY)
        return Introduction(
            version=version,
            info=info if isinstance(info, dict) else {},
            capabilities=found.capabilities,
            instructions=found.instructions or "",
        )

    def _another_version(self, error: McpError) -> Version:
        """The version to ask with instead, of those the server says it supports."""
        data = error.data if isinstance(error.data, dict) else {}
        supported = [text for text in data.get("supported") or [] if isinstance(text, str)]
        known = [BY_TEXT[text] for text in supported if text in BY_TEXT]
        for version in reversed(MODERN):
            if version in known:
                return version
        if known:
            raise _NotModern(f"it offers only {_listed(supported)}")
        why = f"speaks only {_listed(supported)}, and Portico only {_listed(list(BY_TEXT))}"
        raise self._misspoke(why, "version")

    async def _handshake(self, exchange: Exchange) -> Introduction:
        """Greet in the legacy way."""
        params = {
            "protocolVersion": LATEST_LEGACY.text,
            "capabilities": self._answers.capabilities,
            "clientInfo": self._info,
        }
        raw = await exchange.ask(
            exchange.next_id(),
            "initialize",
            encode(params),
            timeout=self._limits.init_s,
            cancellable=False,  # initialize must not be cancelled (2025-11-25, cancellation)
        )
        try:
            found = msgspec.json.decode(raw, type=_Handshake)
        except (msgspec.DecodeError, RecursionError) as error:
            why = f"sent an answer to initialize that cannot be read: {error}"
            raise self._misspoke(why, "protocol") from None
        version = BY_TEXT.get(found.protocolVersion)
        if version is None or version.modern:
            why = (
                f"answers with version {found.protocolVersion[:40]!r}, which Portico does not speak"
            )
            raise self._misspoke(why, "version")
        await exchange.tell("notifications/initialized", headers={VERSION_HEADER: version.text})
        return Introduction(
            version=version,
            info=found.serverInfo,
            capabilities=found.capabilities,
            instructions=found.instructions or "",
        )

    def _misspoke(self, why: str, kind: str) -> TargetError:
        return TargetError(f"{self._address.name} {why}", kind=kind, server=self._address.name)


class _NotModern(Exception):
    """The server answered, but not as one of the modern era."""


def _says_nothing_of_the_era(error: McpError | TargetError) -> bool:
    """True for a modern server's complaint, a closed door, and a server that is not there."""
    if isinstance(error, McpError):
        return error.code in (HEADER_MISMATCH, MISSING_CAPABILITY)
    status = error.details.get("status")
    if status is not None:
        return status in (401, 403)
    return error.kind in ("network", "start", "version")


def _listed(versions: list[str]) -> str:
    return ", ".join(version[:20] for version in versions[:8]) or "no version at all"


async def _stop(task: "asyncio.Task[Any]") -> None:
    task.cancel()
    await asyncio.wait({task})
