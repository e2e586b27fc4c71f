"""A client of one MCP server, of either era, over any wire."""

from collections.abc import Callable, Mapping
from typing import Any, TypedDict, Unpack

import msgspec
from msgspec import Raw

from portico.core.model.errors import HEADER_MISMATCH, McpError, TargetError
from portico.core.model.methods import TABLE
from portico.core.model.offer import HeaderParam
from portico.core.protocol.codec import encode
from portico.core.protocol.eras import LEVEL_KEY, is_input_required
from portico.edge.client.client_answers import NO_ANSWERS, ClientAnswers
from portico.edge.client.listing import Listing, list_all
from portico.upstream.connections.handshake import HandshakeLimits, Introduction, modern_meta
from portico.upstream.connections.request_headers import request_headers
from portico.upstream.rpc.exchange import QUOTING, Exchange
from portico.upstream.wires.wire import quoted_stderr

MAX_ROUNDS = 10
"""The number of times that a server may answer one request with questions."""

Log = Callable[[dict[str, Any]], None]
"""Takes the params of a log message."""
Progress = Callable[[dict[str, Any]], None]
"""Takes the params of a progress notification."""


class ClientOptions(TypedDict, total=False):
    """The timeout and the progress callback of a request."""

    timeout: float | None
    progress: Progress | None


class Client:
    """A client of one server. `connect` returns one; close it, or use `async with`."""

    def __init__(
        self,
        exchange: Exchange,
        server: Introduction,
        *,
        info: Mapping[str, Any],
        answers: ClientAnswers = NO_ANSWERS,
        limits: HandshakeLimits | None = None,
        log: Log | None = None,
    ) -> None:
        self.name = exchange.server
        self.server = server
        self.transport = exchange.wire.transport
        self.limits = limits or HandshakeLimits()
        self.exchange = exchange
        self._answers = answers
        self._info = info
        self._log = log
        self._log_level = ""
        self._header_params: dict[str, tuple[HeaderParam, ...]] | None = None

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def modern(self) -> bool:
        """True if the server is of the modern era."""
        return self.server.version.modern

    @property
    def has_headers(self) -> bool:
        """True if a request must repeat parts of its body in HTTP headers."""
        return self.modern and self.exchange.wire.has_headers

    async def request(
        self, method: str, params: Mapping[str, Any] | None = None, **options: Unpack[ClientOptions]
    ) -> dict[str, Any]:
        """Send a request, answer the server's questions, and return the result.

        Raises McpError with the server's own error, TargetError if there is no valid response.
        """
        return self._decode(method, await self.request_raw(method, params, **options))

    async def request_raw(
        self, method: str, params: Mapping[str, Any] | None = None, **options: Unpack[ClientOptions]
    ) -> bytes:
        """Send a request like `request`, and return the raw result."""
        given = dict(params or {})
        sent = given
        for _ in range(MAX_ROUNDS):
            raw = await self.request_once(method, sent, **options)
            if not self.modern or not is_input_required(raw):
                return raw
            sent = given | await self._next_round(method, self._decode(method, raw))
        raise self._broken(f"still requires input after {MAX_ROUNDS} rounds of {method}")

    async def request_once(
        self, method: str, params: Mapping[str, Any], **options: Unpack[ClientOptions]
    ) -> bytes:
        """Send one round of a request, and return the raw result."""
        try:
            return await self._send(method, params, **options)
        except McpError as error:
            if error.code != HEADER_MISMATCH or method != "tools/call" or not self.has_headers:
                raise
            # The tool's schema may have changed since it was listed (client behavior); the
            # refused call did not run, so a retry is safe.
            self._header_params = None
            return await self._send(method, params, **options)

    async def _send(
        self,
        method: str,
        params: Mapping[str, Any],
        timeout: float | None = None,
        progress: Progress | None = None,
    ) -> bytes:
        headers = await self._headers(method, params) if self.has_headers else {}
        id = self.exchange.next_id()
        try:
            return await self.exchange.request(
                id,
                method,
                encode(self._with_meta(params, id if progress is not None else b"")),
                timeout=self.limits.call_s if timeout is None else timeout,
                headers=headers,
                progress=progress and (lambda raw: progress(msgspec.json.decode(raw))),
            )
        except TargetError as error:
            if error.kind != "timeout" or method in QUOTING:
                raise
            # The server has no other client, so its stderr is about this call.
            ends = quoted_stderr(self.exchange.wire.last_output())
            raise TargetError(f"{error}{ends}", kind="timeout", server=self.name) from None

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        **options: Unpack[ClientOptions],
    ) -> dict[str, Any]:
        """Call a tool; a result with `isError` is a result."""
        params = {"name": name, "arguments": dict(arguments or {})}
        return await self.request("tools/call", params, **options)

    async def list_tools(self) -> list[dict[str, Any]]:
        """Return all tools."""
        return (await self.listing("tools")).items

    async def listing(self, kind: str) -> Listing:
        """Return a whole list and its size: `tools`, `resources`, `templates` or `prompts`."""
        listing = await list_all(self, kind)
        if kind == "tools" and self.has_headers:
            self._header_params = listing.header_params
        return listing

    async def set_log_level(self, level: str) -> None:
        """Request log messages of this level and above, if the server supports logging."""
        self._log_level = level
        if not self.modern and "logging" in self.server.capabilities:
            await self.request("logging/setLevel", {"level": level})

    async def close(self) -> None:
        """Close the connection, and stop the server if Portico started it."""
        await self.exchange.close()

    def on_notification(self, method: str, params: bytes, about: bytes = b"") -> None:
        """Handle a notification of the server."""
        if method != "notifications/message" or self._log is None:
            return
        try:
            self._log(msgspec.json.decode(params, type=dict[str, Any]))
        except (msgspec.DecodeError, RecursionError):
            self.exchange.garbage += 1

    def _with_meta(self, params: Mapping[str, Any], token: bytes) -> dict[str, Any]:
        meta: dict[str, Any] = dict(params.get("_meta") or {})
        if self.modern:
            version = self.server.version
            meta |= modern_meta(version, self._info, self._answers.capabilities)
            if self._log_level:
                meta[LEVEL_KEY] = self._log_level
        if token:
            meta["progressToken"] = Raw(token)
        return {**params, "_meta": meta} if meta else dict(params)

    async def _headers(self, method: str, params: Mapping[str, Any]) -> dict[str, str]:
        declared: tuple[HeaderParam, ...] = ()
        if method == "tools/call":
            # Only the list declares the arguments to repeat in headers.
            if self._header_params is None:
                await self.listing("tools")
            declared = (self._header_params or {}).get(str(params.get("name")), ())
        return request_headers(method, params, self.server.version, declared)

    async def _next_round(self, method: str, result: dict[str, Any]) -> dict[str, Any]:
        """Return the params to add in the next round: all answers, and the state unchanged."""
        meaning = TABLE.get((method, self.server.version))
        if meaning is not None and not meaning.rounds:
            raise self._broken(f"requires input for {method}, which the protocol does not allow")
        questions, state = result.get("inputRequests"), result.get("requestState")
        if not isinstance(questions, dict | None) or (questions is None and state is None):
            raise self._broken(f"requires input for {method} but sent no questions")
        added: dict[str, Any] = {} if state is None else {"requestState": state}
        if questions:
            added["inputResponses"] = {
                key: await self._answer(key, question) for key, question in questions.items()
            }
        return added

    async def _answer(self, key: str, question: Any) -> Mapping[str, Any]:
        fields = question if isinstance(question, dict) else {}
        method = str(fields.get("method"))
        params = fields.get("params") or {}
        if method == "ping" or not isinstance(params, dict):
            raise self._broken(f"sent an invalid question ({key[:40]})")
        try:
            return await self._answers.answer(method, params)
        except McpError as refusal:
            raise self._broken(f"requires an answer that failed: {refusal.message}") from None

    def _decode(self, method: str, raw: bytes) -> dict[str, Any]:
        try:
            result: dict[str, Any] = msgspec.json.decode(raw, type=dict[str, Any])
        except (msgspec.DecodeError, RecursionError) as error:
            raise self._broken(f"sent a result of {method} that cannot be read: {error}") from None
        return result

    def _broken(self, why: str) -> TargetError:
        return TargetError(f"{self.name} {why}", kind="protocol", server=self.name)
