"""A connection to one agent process over ACP v1: our requests, and those of the agent."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from portico.agents.turns.agent_exchange import AgentExchange
from portico.agents.turns.delegation import AgentLaunch
from portico.agents.turns.failures import (
    AUTH_REQUIRED,
    AgentFailed,
    LoginRequired,
    WrongAgentVersion,
    auth_methods,
    login_command,
    method_names,
)
from portico.agents.turns.lenient import decoded_fields, fields, items, short, text
from portico.core.model.errors import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, McpError
from portico.core.protocol.codec import encode_escaped
from portico.upstream.process.family import Family
from portico.upstream.rpc.dialect import Dialect
from portico.upstream.rpc.pending_request import FOREVER
from portico.upstream.rpc.rpc_error import one_line
from portico.upstream.wires.wire import quoted_stderr

PROTOCOL_VERSION = 1
ACP = Dialect(
    cancel_method="$/cancel_request",
    has_cancel_reason=False,
    cancelled_code=-32800,
    progress_method="",
    max_garbage_lines=100_000,  # installers and wrappers print before the agent does
    max_incoming=64,
)
MAX_OPEN_BYTES = 64 * 1024 * 1024
"""The total size of the agent's own requests that may be open."""
_LARGE = frozenset({"fs/read_text_file", "fs/write_text_file", "terminal/output"})
"""Requests with large params or results. They are answered one at a time, each once the agent has
read the results before it: an agent that requests much and reads nothing gets one."""
_CLOSE_S = 2.0
_MAX_MODES, _MAX_MODE = 30, 200


class AgentProfile(Struct, frozen=True, kw_only=True):
    """An agent's description of itself, from the handshake."""

    name: str = ""
    version: str = ""
    capabilities: Mapping[str, Any] = {}
    auth_methods: Sequence[dict[str, Any]] = ()
    logged_in: bool | None = None
    """Whether it reports a login, or that it needs none; None if it does not report it."""
    found_command: str = ""
    """The program of an agent that was looked up and not started; empty if it was started."""

    def has(self, *path: str) -> bool:
        """True if a capability is declared; an empty object declares one, too."""
        value: Any = self.capabilities
        for key in path:
            value = fields(value).get(key)
        return value is True or isinstance(value, dict)


class AcpHandler(Protocol):
    """Takes what an agent sends by itself, in the order of arrival."""

    def updated(self, session_id: str, update: dict[str, Any], raw: bytes) -> None:
        """A `session/update` arrived."""
        ...

    def dropped(self, what: str) -> None:
        """A message was dropped; `what` is an event for the task."""
        ...

    async def answer(self, method: str, params: dict[str, Any]) -> Mapping[str, Any]:
        """Return the result of a request; raises McpError."""
        ...


class AcpConnection:
    """One process of an agent. It is opened once, and closed once."""

    def __init__(
        self, launch: AgentLaunch, cwd: str | None = None, family: Family | None = None
    ) -> None:
        self.launch = launch
        self.family = family or Family()
        self.profile = AgentProfile()
        self.handler: AcpHandler | None = None
        """Takes updates and requests; without one, updates are dropped and requests refused."""
        command = launch.command(cwd, self.family)
        self.exchange = AgentExchange(
            command.wire(), command.name, self._serve, self._on_notification, ACP
        )
        self.exchange.on_dropped = self._on_dropped
        self._open_bytes = 0
        self._large = asyncio.Lock()
        self._prompts: dict[str, asyncio.Lock] = {}
        self._modes: tuple[str, ...] = ()
        """The modes of the last session; empty if the agent does not list them."""

    async def open(self) -> None:
        """Start the process and complete the handshake within the start timeout."""
        try:
            async with asyncio.timeout(self.launch.timeouts.start):
                await self.exchange.open()
                await self._initialize()
                if self.launch.auth_method:
                    await self.authenticate(self.launch.auth_method, self.launch.auth_meta)
        except TimeoutError:
            await self.close()
            raise self.start_timeout() from None
        except BaseException:
            await self.close()
            raise

    def start_timeout(self) -> AgentFailed:
        """Return the error of a start that took too long."""
        why = f"{self.launch.name} did not start within {self.launch.timeouts.start:g} s"
        ends = quoted_stderr(self.exchange.wire.last_output())
        return AgentFailed(f"{why}{ends}", kind="timeout", server=self.launch.name)

    @property
    def is_over(self) -> bool:
        """True if the process has ended or was closed."""
        return self.exchange.is_over()

    async def _initialize(self) -> None:
        name = self.launch.name
        try:
            result = await self.request("initialize", self._handshake())
        except McpError as error:
            why = f"{name} rejected the handshake (initialize): {one_line(error)} ({error.code})"
            raise AgentFailed(why, kind="refused", server=name) from None
        version = result.get("protocolVersion")
        if version != PROTOCOL_VERSION or isinstance(version, bool):
            raise WrongAgentVersion(name, version, PROTOCOL_VERSION)
        info = fields(result.get("agentInfo"))
        self.profile = AgentProfile(
            name=short(info.get("title") or info.get("name"), 100),
            version=short(info.get("version"), 40),
            capabilities=fields(result.get("agentCapabilities")),
            auth_methods=auth_methods(result.get("authMethods")),
        )

    def _handshake(self) -> dict[str, Any]:
        callbacks = self.launch.callbacks
        return {
            "protocolVersion": PROTOCOL_VERSION,
            "clientInfo": {
                "name": "portico",
                "title": "Portico",
                "version": self.launch.client_version,
            },
            "clientCapabilities": {
                "fs": {"readTextFile": callbacks.reads, "writeTextFile": callbacks.writes},
                "terminal": callbacks.terminal,
                "session": {"configOptions": {"boolean": {}}, "notices": {}, "compaction": {}},
                "elicitation": {"form": {}},
            },
        }

    async def logged_in(self) -> bool | None:
        """Return whether the agent reports a login; None if it cannot. Raises LoginRequired."""
        if not self.profile.has("auth", "status"):
            return None
        try:
            state = (await self.request("auth/status", {})).get("state")
        except McpError:
            return None
        if state == "unauthenticated":
            raise self._login_required({})
        return True if state in ("authenticated", "not_required") else None

    async def authenticate(self, method: str, meta: Mapping[str, Any]) -> None:
        """Authenticate by one of the agent's methods."""
        params: dict[str, Any] = {"methodId": method}
        if meta:
            params["_meta"] = dict(meta)
        try:
            await self.request("authenticate", params)
        except McpError as error:
            why = f"{self.launch.name} rejected the login {method!r}: {one_line(error)}"
            raise AgentFailed(why, kind="login", server=self.launch.name) from None

    async def new_session(self, cwd: str, servers: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Create a session; return the result with its id."""
        result = await self.request("session/new", self._session(cwd, servers))
        if not text(result.get("sessionId")):
            why = f"{self.launch.name} created a session without an id"
            raise AgentFailed(why, kind="protocol", server=self.launch.name)
        return self._noted(result)

    @property
    def resume_method(self) -> str:
        """The method that continues a session; empty if the agent has none."""
        if self.profile.has("sessionCapabilities", "resume"):
            return "session/resume"
        return "session/load" if self.profile.has("loadSession") else ""

    async def resume_session(
        self, id: str, cwd: str, servers: Sequence[dict[str, Any]]
    ) -> dict[str, Any]:
        """Continue a session; `session/load` replays its history as updates first."""
        if not self.resume_method:
            why = f"{self.launch.name} cannot continue a session: start a new task instead"
            raise AgentFailed(why, kind="unsupported", server=self.launch.name)
        params = {"sessionId": id, **self._session(cwd, servers)}
        return self._noted(await self.request(self.resume_method, params))

    def _noted(self, session: dict[str, Any]) -> dict[str, Any]:
        """Keep the modes of a session."""
        modes = items(fields(session.get("modes")).get("availableModes"))[:_MAX_MODES]
        ids = (short(fields(mode).get("id"), _MAX_MODE) for mode in modes)
        self._modes = tuple(filter(None, ids))
        return session

    def _session(self, cwd: str, servers: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """The params that open a session in every way."""
        meta = self.launch.session_meta
        about: dict[str, Any] = {"_meta": dict(meta)} if meta else {}
        return {"cwd": cwd, "mcpServers": list(servers), **about}

    async def close_session(self, id: str) -> None:
        """Close a session, if the agent supports that; failures do not matter."""
        if not self.profile.has("sessionCapabilities", "close") or self.is_over:
            return
        try:
            async with asyncio.timeout(_CLOSE_S):
                await self.request("session/close", {"sessionId": id})
        except (TimeoutError, McpError, AgentFailed):
            pass

    async def set_mode(self, session_id: str, mode: str) -> None:
        """Set the mode of a session; without it, the agent may not request permissions."""
        name = self.launch.name
        if self._modes and mode not in self._modes:
            why = f"{name} has no mode {mode!r}; set one of {', '.join(self._modes)} in the config"
            raise AgentFailed(why, kind="refused", server=name)
        try:
            await self.request("session/set_mode", {"sessionId": session_id, "modeId": mode})
        except McpError as error:
            why = f"{name} rejected the mode {mode!r}: {one_line(error)} ({error.code})"
            how = "install its newest version, or set another mode in the config"
            raise AgentFailed(f"{why}; {how}", kind="refused", server=name) from None

    async def set_config_option(self, session_id: str, id: str, value: str | bool) -> None:
        """Set a config option of a session."""
        params: dict[str, Any] = {"sessionId": session_id, "configId": id, "value": value}
        if isinstance(value, bool):
            params["type"] = "boolean"
        await self.request("session/set_config_option", params)

    async def prompt(self, session_id: str, blocks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Send a prompt, and return its response at the end of the turn.

        Prompts of one session wait for each other: agents fail the first when a second arrives.
        """
        lock = self._prompts.setdefault(session_id, asyncio.Lock())
        async with lock:
            params = {"sessionId": session_id, "prompt": list(blocks)}
            return await self.request("session/prompt", params)

    async def cancel(self, session_id: str) -> None:
        """Ask the agent to end the turn of a session."""
        await self.exchange.notify("session/cancel", encode_escaped({"sessionId": session_id}))

    async def request(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request, without a timeout of its own, and return the result.

        Raises McpError with the agent's own error, TargetError if there is no valid response.
        """
        exchange = self.exchange
        try:
            raw = await exchange.request(
                exchange.next_id(),
                method,
                encode_escaped(params),
                timeout=FOREVER,
                # A turn is cancelled by `session/cancel`, and ends with an ordinary response.
                cancellable=method != "session/prompt",
            )
        except McpError as error:
            if error.code == AUTH_REQUIRED:
                raise self._login_required(fields(error.data)) from None
            raise
        result = {} if raw == b"null" else decoded_fields(raw)
        if result is None:
            why = f"{self.launch.name} sent an invalid result of {method}"
            raise AgentFailed(why, kind="protocol", server=self.launch.name)
        return result

    def _login_required(self, data: Mapping[str, Any]) -> LoginRequired:
        methods = auth_methods(data.get("authMethods")) or list(self.profile.auth_methods)
        command = login_command(self.launch.argv, methods, self.launch.login)
        return LoginRequired(self.launch.name, command, method_names(methods))

    async def close(self) -> None:
        """End the process and all its descendants."""
        self.handler = None
        await self.exchange.close()

    def _on_notification(self, method: str, params: bytes, about: bytes) -> None:
        handler = self.handler
        if method != "session/update" or handler is None:
            return
        decoded = decoded_fields(params)
        if decoded is None:
            self.exchange.garbage += 1
            return
        handler.updated(text(decoded.get("sessionId")), fields(decoded.get("update")), params)

    def _on_dropped(self, what: str) -> None:
        if self.handler is not None:
            self.handler.dropped(what)

    async def _serve(self, method: str, params: bytes, about: bytes) -> bytes:
        handler = self.handler
        if handler is None:
            raise McpError(f"there is no session for {method[:80]}", METHOD_NOT_FOUND)
        if self._open_bytes + len(params) > MAX_OPEN_BYTES:
            raise McpError(f"open requests exceed {MAX_OPEN_BYTES} bytes", INTERNAL_ERROR)
        self._open_bytes += len(params)
        try:
            if method not in _LARGE:
                return await _result(handler, method, params)
            async with self._large:
                await self.exchange.wire.drained()
                return await _result(handler, method, params)
        finally:
            self._open_bytes -= len(params)


async def _result(handler: AcpHandler, method: str, params: bytes) -> bytes:
    decoded = decoded_fields(params)
    if decoded is None:
        raise McpError(f"the params of {method[:80]} are not an object", INVALID_PARAMS)
    try:
        return encode_escaped(await handler.answer(method, decoded))
    except McpError:
        raise
    except Exception as error:  # the agent waits for a response in any case
        raise McpError(f"{method[:80]} failed: {type(error).__name__}") from error
