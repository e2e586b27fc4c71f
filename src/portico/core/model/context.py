"""The context of a request: its client, session and deadline, and the way back to the client."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, overload

import msgspec
from msgspec import Struct

from portico.core.model.content import ToolResult
from portico.core.model.message import Meta, Request, Response
from portico.core.model.session import LOG_LEVELS, Session
from portico.core.model.task_control import CreatedTask, RunningTask, TaskControl, TaskRequest
from portico.core.model.version import Version, version_of

if TYPE_CHECKING:
    from portico.core.model.types import Handler

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

LOCAL = "local"
"""The only principal until clients have identities."""
WAITED = 1e-6
"""A second of waiting, as progress: it must not pass that of the tool, which comes later."""
_MAX_WAITED = 1000 * WAITED
ANYONE = "anyone"
"""The principal of clients over HTTP without a token: they cannot list tasks."""


def is_waiting(progress: Any) -> bool:
    """True if this is the progress of waiting, whose number means nothing to a person."""
    return isinstance(progress, float) and 0 < progress < _MAX_WAITED


class Ask(Struct, frozen=True):
    """A question to the client: an elicitation, a sampling or a list of roots."""

    method: str
    params: dict[str, Any]
    capability: str
    """The capability that the client must have declared, e.g. `elicitation`."""
    mode: str = ""
    """The required part of that capability, e.g. `url`."""


class Peer(Protocol):
    """The way back to the client, provided by the transport.

    If the client can resume a closed stream (2025-11-25, polling), its peer also has an async
    `close_stream()`.
    """

    async def notify(self, message: bytes) -> None:
        """Send a notification about this request; wait while the client reads slowly."""
        ...

    async def ask(self, method: str, params: bytes) -> bytes:
        """Send a legacy server-to-client request and return its raw result, or raise AskError."""
        ...

    async def closed(self) -> None:
        """Wait until the connection ends or the server drains."""
        ...


class Asker(Protocol):
    """Sends questions to the client, in the way of the request's era."""

    async def ask(self, asks: Mapping[str, Ask]) -> dict[str, Any]:
        """Return all answers by key, or raise to end or suspend the handler."""
        ...

    def form(self, kind: type[T]) -> "TypedForm[T]":
        """Return the form that a class describes."""
        ...

    async def call_tool(
        self, context: "Context", name: str, arguments: Mapping[str, Any]
    ) -> ToolResult:
        """Call a downstream tool, whose questions reach the client."""
        ...


class Values(Protocol):
    """The values that one component keeps for one session."""

    async def get(self, key: str, default: Any = None, *, type: type[T] | None = None) -> Any:
        """Return a value, or the default if there is none; with a type, as an instance of it."""
        ...

    async def set(self, key: str, value: Any, *, expires_in: float | None = None) -> None:
        """Keep bytes, or a value with a JSON form; for this many seconds, if given."""
        ...

    async def increment(self, key: str, by: int = 1) -> int:
        """Add to an integer, which is 0 at first, and return it."""
        ...

    async def delete(self, key: str) -> bool:
        """Remove a value; False if there was none."""
        ...

    async def keys(self) -> list[str]:
        """Return all keys, sorted."""
        ...

    async def clear(self) -> None:
        """Remove all values."""
        ...


class LifespanValue(Protocol):
    """The lifespan of a server, as its handlers use it."""

    @property
    def value(self) -> Any:
        """The value; RuntimeError while the lifespan is not running."""
        ...


class TypedForm(Protocol[T_co]):
    """A form described by a class."""

    schema: dict[str, Any]

    def read(self, content: dict[str, Any]) -> T_co:
        """Return the submitted content as an instance of the class."""
        ...


class Elicited(Struct, Generic[T], frozen=True):
    """A person's answer to a form: `accept` with content, `decline` or `cancel`."""

    action: str
    content: T
    """The submitted content. If there is none: `{}`, or None for a form described by a class."""

    @property
    def accepted(self) -> bool:
        """True if the person submitted the form."""
        return self.action == "accept"


class Context:
    """The principal and data of one request, and the methods that send to its client.

    The methods are the same in both eras. In the modern era a question ends the round: once the
    client has answered, the handler runs again from its start, and questions that already have an
    answer return immediately. Do work that must not happen twice after the last question, or keep
    its outcome in `state`, which is sealed and sent along from round to round.
    """

    __slots__ = (
        "_asker",
        "_counter",
        "_lifespan",
        "_made",
        "_state",
        "_values",
        "calls",
        "cancelled",
        "created",
        "data",
        "deadline",
        "depth",
        "downstream",
        "failure",
        "headers",
        "is_over",
        "is_reached",
        "link_parts",
        "peer",
        "principal",
        "request",
        "server_info",
        "session",
        "target",
        "task_control",
        "task_wish",
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
        """The time on the event loop's clock at which the call times out; None for no limit."""
        self.peer = peer
        self.version = version_of(version) if isinstance(version, str) else version
        """The version to assume for a request that has neither a version nor a session."""
        self.headers = headers
        """The HTTP headers to compare with the body; None on stdio, which has none."""
        self.cancelled = False
        self.server_info = b""
        """The server's identity as JSON: a modern result includes it."""
        self.target: tuple[str, str] | None = None
        """The gateway member that owns the called item, and the item's name there; both empty if no
        member owns it, None if the call was not routed."""
        self.failure: Response | None = None
        """The original failure of the call, where the client gets a rewritten one."""
        self.task_wish: TaskRequest | None = None
        """Set if a server may answer this call with a task of its own."""
        self.created: CreatedTask | None = None
        """The task of its own with which a server answered."""
        self.task_control: TaskControl | None = None
        """Set if this call is a task, or can become one."""
        self.request: Request | None = None
        self.downstream: Handler | None = None
        """Answers the calls of `call_tool`; None if nothing is downstream of this server."""
        self.depth = 0
        """The number of calls of `call_tool` that led to this request."""
        self.calls: dict[str, Any] = {}
        """The calls of `call_tool` so far, which are sealed with the state."""
        self.is_over = False
        """True once the links have answered."""
        self.is_reached = False
        """True once a request has passed all links in this round."""
        self.link_parts: Any = None
        """The answers and states of links; None until there is a first question."""
        self._state: dict[str, Any] | None = None
        self._asker: Asker | None = None
        self._counter = 0
        self._lifespan: LifespanValue | None = None
        self._values: Callable[[Context], Values] | None = None
        self._made = 0

    def bound(self, request: Request, asker: Asker | None, state: dict[str, Any]) -> "Context":
        """Return a copy of this context for one run of one handler."""
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
        bound.downstream, bound.depth = self.downstream, self.depth
        bound.task_control = self.task_control
        bound._state = state
        bound._asker = asker
        return bound

    def bind_links(self, asker: Asker, request: Request) -> None:
        """Let the links that get this context ask."""
        self._asker, self.request = asker, request
        self.is_over = self.is_reached = False

    @property
    def state(self) -> dict[str, Any]:
        """Data that is sealed and sent along from round to round; a link has its own."""
        if self._state is None:
            of_link = getattr(self._asker, "state", None)
            if of_link is not None:
                found: dict[str, Any] = of_link()
                return found
            self._state = {}
        return self._state

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        set_of_link = getattr(self._asker, "set_state", None)
        if self._state is None and set_of_link is not None:
            set_of_link(state)
        else:
            self._state = state

    @property
    def store(self) -> Values:
        """Values that this component keeps for the client's session, from call to call; raises
        SessionError if the request has no session."""
        find = self._values or getattr(self._asker, "values", None)
        if find is None:
            raise RuntimeError("context.store is for a handler or a link while it has a request")
        found: Values = find(self)
        return found

    def release(self) -> None:
        """Disconnect the context when its handler has returned: work left running cannot send,
        and a large request is freed immediately, without the cycle collector."""
        self.peer = self._asker = self.downstream = self._values = None

    def derived(self) -> "Context":
        """Return a context for a request derived from this one, which has no headers of its own."""
        derived = Context(
            principal=self.principal,
            data=self.data,
            session=self.session,
            deadline=self.deadline,
            peer=self.peer,
            version=self.version,
        )
        derived.downstream, derived.depth = self.downstream, self.depth
        return derived

    @property
    def lifespan(self) -> Any:
        """The value of the lifespan of the handler's server; RuntimeError if it has none."""
        if self._lifespan is None:
            raise RuntimeError(
                "context.lifespan is for the handlers of a server with a lifespan; "
                "create it with Server(lifespan=...)"
            )
        return self._lifespan.value

    @property
    def owner(self) -> str:
        """The owner of the tasks that this request creates: the user, unless it has another
        principal."""
        return LOCAL if self.principal == ANYONE else self.principal

    @property
    def task(self) -> RunningTask | None:
        """The task in which the handler runs; None in a plain call."""
        return None if self.task_control is None else self.task_control.task

    async def begin_task(self) -> RunningTask | None:
        """Make a call of a tool with `task="manual"` a task from here on; None if its client cannot
        have one. Questions before this go to the client in ordinary rounds."""
        return None if self.task_control is None else await self.task_control.begin()

    @property
    def client_capabilities(self) -> dict[str, Any]:
        """The capabilities that the client declared, in this request or in its handshake."""
        known = self.session.capabilities if self.session is not None else {}
        return _decoded_or(self._meta.client_capabilities, known)

    @property
    def client_info(self) -> dict[str, Any]:
        """The name and version of the client, if it sent them."""
        known = self.session.client_info if self.session is not None else {}
        return _decoded_or(self._meta.client_info, known)

    async def progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Report the progress of this call, if the client requested that; in a task, always."""
        if (task := self.task) is not None:
            step = f"{progress:g}" if total is None else f"{progress:g}/{total:g}"
            parts = [message] if message and is_waiting(progress) else [step, message]
            await task.message(": ".join(part for part in parts if part))
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
        """Send a log message, if the client requested messages of this level."""
        if level not in LOG_LEVELS:
            raise ValueError(f"{level!r} is not a log level; use one of {', '.join(LOG_LEVELS)}")
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
        """Send a log message of the level `error`; the call continues."""
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
        """Ask the person to visit a page; `accepted` means that they agreed, not that they did."""
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
        """Request a completion from the client's model; `more` are further fields."""
        answer: dict[str, Any] = await self._ask_one(sampling(messages, max_tokens, **more), key)
        return answer

    async def roots(self, *, key: str | None = None) -> list[dict[str, Any]]:
        """Request the roots that the client works in."""
        answer = await self._ask_one(ROOTS, key)
        roots: list[dict[str, Any]] = answer.get("roots") or []
        return roots

    async def call_tool(self, name: str, arguments: Mapping[str, Any] | None = None) -> ToolResult:
        """Call a tool of the servers downstream, and return its result; a tool that failed returns
        one with `is_error`, anything else that fails raises McpError.

        Its questions reach the client, and it ends when this call is cancelled. Its result is kept
        from round to round, so that no call is made twice.
        """
        return await self._asking.call_tool(self, name, arguments or {})

    async def close_stream(self) -> None:
        """Close a legacy HTTP stream, which the client resumes; do nothing elsewhere."""
        close = getattr(self.peer, "close_stream", None)
        if close is not None:
            await close()

    async def ask(self, asks: Mapping[str, Ask]) -> dict[str, Any]:
        """Ask several questions in one round; return the raw answers by key."""
        return await self._asking.ask(asks)

    def count_call(self) -> int:
        """Return the number of a call of `call_tool` in this run of the handler."""
        self._made += 1
        return self._made

    @property
    def _asking(self) -> Asker:
        if self._asker is None:
            raise RuntimeError("cannot ask: this context is not bound to a request with a client")
        return self._asker

    async def _ask_one(self, ask: Ask, key: str | None) -> dict[str, Any]:
        if key is None:
            # Without a key, questions are numbered: a repeated run has them in the same order.
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
        """The lowest level that the client requested; empty for no messages at all."""
        if self.peer is None or self.request is None:
            return ""
        if self.request.version.modern:
            # Only requests with a level get messages (2026-07-28, logging).
            return self.request.meta.log_level
        return "" if self.session is None else self.session.log_level or "info"

    async def _notify(self, method: str, params: dict[str, Any]) -> None:
        assert self.peer is not None
        await self.peer.notify(
            msgspec.json.encode({"jsonrpc": "2.0", "method": method, "params": params})
        )


def _decoded_or(raw: bytes, fallback: dict[str, Any]) -> dict[str, Any]:
    return msgspec.json.decode(raw, type=dict[str, Any]) if raw else fallback


def elicitation(message: str, schema: Mapping[str, Any]) -> Ask:
    """A question that shows a person a form: a flat object schema of primitive fields."""
    # An empty schema is a yes or no question; the protocol requires both fields.
    form = {"type": "object", "properties": {}, **schema}
    params = {"message": message, "requestedSchema": form}
    return Ask("elicitation/create", params, "elicitation", "form")


def url_elicitation(message: str, url: str, id: str = "") -> Ask:
    """A question that sends a person to a page."""
    params = {"mode": "url", "message": message, "url": url}
    if id:
        params["elicitationId"] = id
    return Ask("elicitation/create", params, "elicitation", "url")


def sampling(messages: str | list[dict[str, Any]], max_tokens: int = 1000, **more: Any) -> Ask:
    """A question that requests a completion from the client's model."""
    if isinstance(messages, str):
        messages = [{"role": "user", "content": {"type": "text", "text": messages}}]
    params = {"messages": messages, "maxTokens": max_tokens, **more}
    return Ask("sampling/createMessage", params, "sampling", "tools" if "tools" in more else "")


ROOTS = Ask("roots/list", {}, "roots")
"""A question that requests the list of the client's roots."""
