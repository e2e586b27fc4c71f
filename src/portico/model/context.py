"""What belongs to one request and is not in it."""

from collections.abc import Mapping
from typing import Any, Generic, Protocol, TypeVar, overload

import msgspec
from msgspec import Struct

from portico.model.message import Meta, Request, Response
from portico.model.session import LOG_LEVELS, Session
from portico.model.version import Version, version_of

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

LOCAL = "local"
"""The one principal there is until clients have identities."""


class Ask(Struct, frozen=True):
    """A question to the client: an elicitation, a sampling or a list of roots."""

    method: str
    params: dict[str, Any]
    capability: str
    """What the client must have declared, e.g. `elicitation`."""
    mode: str = ""
    """The part of that capability needed, e.g. `url`."""


class Peer(Protocol):
    """The way back to the one who asked, given by the transport.

    One whose client can come back to a closed stream (2025-11-25, polling) also has an async
    `close_stream()`.
    """

    async def notify(self, message: bytes) -> None:
        """Send a notification that belongs to this request; waits while the reader is slow."""
        ...

    async def ask(self, method: str, params: bytes) -> bytes:
        """Send a legacy server-to-client request; its raw result, or AskError."""
        ...

    async def closed(self) -> None:
        """Wait until the connection ends or the server drains."""
        ...


class Asker(Protocol):
    """How questions are put in the era at hand."""

    async def ask(self, asks: Mapping[str, Ask]) -> dict[str, Any]:
        """All answers by key, or an exception that ends or suspends the handler."""
        ...

    def form(self, kind: type[T]) -> "TypedForm[T]":
        """The form that a class describes."""
        ...


class TypedForm(Protocol[T_co]):
    """A form made of a class."""

    schema: dict[str, Any]

    def read(self, content: dict[str, Any]) -> T_co:
        """An instance of the class, of what was filled in."""
        ...


class Elicited(Struct, Generic[T], frozen=True):
    """What a person answered: `accept` with content, `decline` or `cancel`."""

    action: str
    content: T
    """What was filled in. If nothing was: `{}`, or None where a class was asked for."""

    @property
    def accepted(self) -> bool:
        """True if the person filled in and agreed."""
        return self.action == "accept"


class Context:
    """Principal and request-scoped data, untouched to the handler, and the ways to talk back.

    The calls are the same in both eras. In the modern one a question ends the round: the handler
    is run again from its start once the client has answered, and every question already answered
    returns at once. Do work that must not happen twice after the last question, or keep its
    outcome in `state`, which travels, sealed, with the rounds.
    """

    __slots__ = (
        "_asker",
        "_counter",
        "cancelled",
        "data",
        "deadline",
        "failure",
        "headers",
        "peer",
        "principal",
        "request",
        "server_info",
        "session",
        "state",
        "target",
        "version",
    )

    def __init__(
        self,
        *,
        principal: str = LOCAL,
        data: Any = None,
        session: Session | None = None,
        deadline: float | None = None,
        peer: Peer | None = None,
        version: Version | str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.principal = principal
        self.data = data
        self.session = session
        self.deadline = deadline
        """When the answer is no use any more, by the event loop's clock; None for never."""
        self.peer = peer
        self.version = version_of(version) if isinstance(version, str) else version
        """The version to assume for a request that names none and has no session."""
        self.headers = headers
        """The HTTP headers to hold against the body; None where there are none (stdio)."""
        self.cancelled = False
        self.server_info = b""
        """Who answers, as JSON: a modern result names its server."""
        self.target: tuple[str, str] | None = None
        """The member of a gateway and its own name for what is called; empty if it is nobody's,
        None if the call did not get that far."""
        self.failure: Response | None = None
        """How the call failed, where the client gets that in other words."""
        self.request: Request | None = None
        self.state: dict[str, Any] = {}
        self._asker: Asker | None = None
        self._counter = 0

    def bound(self, request: Request, asker: Asker | None, state: dict[str, Any]) -> "Context":
        """The same context for one run of one handler."""
        bound = type(self)(
            principal=self.principal,
            data=self.data,
            session=self.session,
            deadline=self.deadline,
            peer=self.peer,
            version=request.version,
            headers=self.headers,
        )
        bound.request = request
        bound.server_info = self.server_info
        bound.state = state
        bound._asker = asker
        return bound

    def release(self) -> None:
        """The handler has returned: nobody hears what it left running, and a large request is
        freed at once, not when Python next looks for cycles."""
        self.peer = self._asker = None

    def derived(self) -> "Context":
        """The same for a request made of this one: the headers were those of the first."""
        return Context(
            principal=self.principal,
            data=self.data,
            session=self.session,
            deadline=self.deadline,
            peer=self.peer,
            version=self.version,
        )

    @property
    def client_capabilities(self) -> dict[str, Any]:
        """What the client declared: with this request, or when its session began."""
        known = self.session.capabilities if self.session is not None else {}
        return _said(self._meta.client_capabilities, known)

    @property
    def client_info(self) -> dict[str, Any]:
        """Name and version of the client, as far as it told them."""
        known = self.session.client_info if self.session is not None else {}
        return _said(self._meta.client_info, known)

    async def progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Tell the client how far this call is; nothing is sent if it did not ask."""
        token = self._meta.progress_token
        if not token or self.peer is None:
            return
        params: dict[str, Any] = {"progressToken": msgspec.Raw(token), "progress": progress}
        if total is not None:
            params["total"] = total
        if message is not None and self._version >= Version.V2025_03_26:
            params["message"] = message
        await self._notify("notifications/progress", params)

    async def log(self, level: str, data: Any, logger: str | None = None) -> None:
        """Send a log message, if the client wants messages of this level."""
        if level not in LOG_LEVELS:
            raise ValueError(f"{level!r} is not a log level; one of {', '.join(LOG_LEVELS)}")
        threshold = self._log_threshold()
        if not threshold or LOG_LEVELS.index(level) < LOG_LEVELS.index(threshold):
            return
        params: dict[str, Any] = {"level": level, "data": data}
        if logger is not None:
            params["logger"] = logger
        await self._notify("notifications/message", params)

    async def debug(self, data: Any, logger: str | None = None) -> None:
        """Send a log message of the level `debug`."""
        await self.log("debug", data, logger)

    async def info(self, data: Any, logger: str | None = None) -> None:
        """Send a log message of the level `info`."""
        await self.log("info", data, logger)

    async def warning(self, data: Any, logger: str | None = None) -> None:
        """Send a log message of the level `warning`."""
        await self.log("warning", data, logger)

    async def error(self, data: Any, logger: str | None = None) -> None:
        """Send a log message of the level `error`; the call goes on."""
        await self.log("error", data, logger)

    @overload
    async def elicit(
        self, message: str, schema: Mapping[str, Any], *, key: str | None = None
    ) -> Elicited[dict[str, Any]]: ...
    @overload
    async def elicit(
        self, message: str, schema: type[T], *, key: str | None = None
    ) -> Elicited[T | None]: ...
    async def elicit(self, message: str, schema: Any, *, key: str | None = None) -> Elicited[Any]:
        """Ask the person in front of the client to fill in a form.

        The form is a JSON Schema, or a dataclass, TypedDict or Struct; then `content` is an
        instance of it.
        """
        form: TypedForm[Any] | None = None
        if not isinstance(schema, Mapping):
            form = self._asking.form(schema)
            schema = form.schema
        answer = await self._ask_one(elicitation(message, schema), key)
        action, content = str(answer.get("action", "cancel")), answer.get("content") or {}
        if form is None:
            return Elicited(action, content)
        return Elicited(action, form.read(content) if action == "accept" else None)

    async def elicit_url(
        self, message: str, url: str, *, id: str = "", key: str | None = None
    ) -> Elicited[dict[str, Any]]:
        """Ask the person to visit a page; accepted means they agreed, not that they are done."""
        answer = await self._ask_one(url_elicitation(message, url, id), key)
        return Elicited(str(answer.get("action", "cancel")), answer.get("content") or {})

    async def sample(
        self,
        messages: str | list[dict[str, Any]],
        *,
        max_tokens: int = 1000,
        key: str | None = None,
        **more: Any,
    ) -> dict[str, Any]:
        """Have the client's model complete this; `more` are further fields of the request."""
        answer: dict[str, Any] = await self._ask_one(sampling(messages, max_tokens, **more), key)
        return answer

    async def roots(self, *, key: str | None = None) -> list[dict[str, Any]]:
        """The roots the client works in."""
        answer = await self._ask_one(ROOTS, key)
        roots: list[dict[str, Any]] = answer.get("roots") or []
        return roots

    async def close_stream(self) -> None:
        """Hang up on a legacy HTTP client, which comes back for the rest; elsewhere nothing."""
        hang_up = getattr(self.peer, "close_stream", None)
        if hang_up is not None:
            await hang_up()

    async def ask(self, asks: Mapping[str, Ask]) -> dict[str, Any]:
        """Put several questions in one round; the raw answers by key."""
        return await self._asking.ask(asks)

    @property
    def _asking(self) -> Asker:
        if self._asker is None:
            raise RuntimeError("this context cannot ask: it is not bound to a request with a peer")
        return self._asker

    async def _ask_one(self, ask: Ask, key: str | None) -> dict[str, Any]:
        if key is None:
            # Questions without a key are known by their order, which a re-run repeats.
            self._counter += 1
            key = f"{ask.method.partition('/')[0]}-{self._counter}"
        answer: dict[str, Any] = (await self.ask({key: ask}))[key]
        return answer

    @property
    def _meta(self) -> Meta:
        return self.request.meta if self.request is not None else Meta()

    @property
    def _version(self) -> Version:
        assert self.request is not None
        return self.request.version

    def _log_threshold(self) -> str:
        """The least level the client wants; empty for none at all."""
        if self.peer is None or self.request is None:
            return ""
        if self.request.version.modern:
            # Only a request that set a level gets messages (2026-07-28, logging).
            return self.request.meta.log_level
        return "" if self.session is None else self.session.log_level or "info"

    async def _notify(self, method: str, params: dict[str, Any]) -> None:
        assert self.peer is not None
        await self.peer.notify(
            msgspec.json.encode({"jsonrpc": "2.0", "method": method, "params": params})
        )


def _said(raw: bytes, known: dict[str, Any]) -> dict[str, Any]:
    """What a request says of its client, else what is known of that."""
    return msgspec.json.decode(raw, type=dict[str, Any]) if raw else known


def elicitation(message: str, schema: Mapping[str, Any]) -> Ask:
    """A form for a person: a flat object schema of primitive fields."""
    # An empty schema asks for no more than a yes; the wire wants it spelled out.
    form = {"type": "object", "properties": {}, **schema}
    params = {"message": message, "requestedSchema": form}
    return Ask("elicitation/create", params, "elicitation", "form")


def url_elicitation(message: str, url: str, id: str = "") -> Ask:
    """A page for a person to visit."""
    params = {"mode": "url", "message": message, "url": url}
    if id:
        params["elicitationId"] = id
    return Ask("elicitation/create", params, "elicitation", "url")


def sampling(messages: str | list[dict[str, Any]], max_tokens: int = 1000, **more: Any) -> Ask:
    """A completion by the client's model."""
    if isinstance(messages, str):
        messages = [{"role": "user", "content": {"type": "text", "text": messages}}]
    params = {"messages": messages, "maxTokens": max_tokens, **more}
    return Ask("sampling/createMessage", params, "sampling", "tools" if "tools" in more else "")


ROOTS = Ask("roots/list", {}, "roots")
"""The list of the client's roots."""
