"""One session with an upstream, and the clients whose calls are running on it.

A question or notification of the upstream is routed to the only client that it can belong to. If
that is ambiguous, it is refused or dropped, never guessed.
"""

import asyncio
import contextlib
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Protocol
from weakref import WeakSet

import msgspec
from msgspec import Raw, Struct

from portico.core.catalog.attributed_questions import for_session, refused_question
from portico.core.model.errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    AskError,
    McpError,
)
from portico.core.protocol.codec import encode, may_mention
from portico.core.protocol.eras import declares, is_level_enabled, members, needed_capability
from portico.core.protocol.listen import subscription_of
from portico.core.protocol.tasks import RELATED, related_task, task_id, task_in
from portico.upstream.connections.caller import Call, Caller, ask_session
from portico.upstream.connections.handshake import (
    ClientHello,
    HandshakeLimits,
    Introduction,
    open_exchange,
)
from portico.upstream.connections.open_tasks import MAX_TASKS, OpenTasks
from portico.upstream.rpc.exchange import Exchange
from portico.upstream.rpc.rpc_error import ServerError
from portico.upstream.wires.wire import NO_HEADERS, Address, Data

_RELATED = RELATED.encode()
_TASKS, _TASK_STATUS = "notifications/tasks", "notifications/tasks/status"
_START_S = 2.0
"""How long a server that has read roots at its start may take to request them again."""
_ANSWER_S = 10.0
"""How long the first call waits for a client that does not answer at once."""
_SETTLE_S = 0.2
"""How long such a server may take to apply the roots that it has read."""
_SEVERAL = Caller(None, {}, {})
_LISTS = {f"notifications/{kind}/list_changed": kind for kind in ("tools", "resources", "prompts")}


class Watcher(Protocol):
    """Receives the notifications that concern all clients of an upstream."""

    def list_changed(self, session: "UpstreamSession", kind: str) -> None:
        """The upstream announced a change to a list."""
        ...

    def updated(self, session: "UpstreamSession", uri: str, params: bytes) -> None:
        """A resource has changed."""
        ...

    def asked(self, what: frozenset[str]) -> None:
        """The upstream sent a question."""
        ...


class _Log(Struct):
    level: str = ""


class _Updated(Struct):
    uri: str


class UpstreamSession:
    """A session with an upstream; opened once, closed once."""

    def __init__(
        self, name: str, owner: Caller | None, watcher: Watcher, may_ask: bool = True
    ) -> None:
        self.name = name
        self.may_ask = may_ask
        self.owner = owner
        """The only client that uses it; None if it is shared."""
        self.calls: dict[bytes, Call] = {}
        self.callers: WeakSet[Caller] = WeakSet()
        self.tasks = OpenTasks()
        self.hides_tasks = False
        """True if clients never see the upstream's own ids of tasks."""
        self.has_client_roots = False
        self.asked_tokens: dict[Any, Caller] = {}
        """The progress tokens of questions that wait for an answer, and who has them."""
        self.is_told = False
        """True if a shared upstream may send questions; the first one ends the sharing."""
        self.is_used = False
        """True if a client's call was sent."""
        self.reads_roots = False
        """True if the upstream reads its client's roots at its start."""
        self.closing = False
        """True if Portico is closing it."""
        self.exchange: Exchange
        self.server: Introduction
        """The upstream's response to the handshake."""
        self.modern: bool
        """True if the session is of the modern era."""
        self.latest: Caller | None = None
        """The last client with a session that used it."""
        self._watcher = watcher
        self._roots_asked = asyncio.Event()
        self._roots_answered = asyncio.Event()
        self._roots_settled = False
        self._waiting: Call | None = None
        """The first call, which is sent when the upstream has the roots."""
        self._abandoned: Caller | None = None
        """A client whose call ended without an answer, and may still run at the upstream."""
        self._progress: dict[bytes, Call] = {}
        """By token, the calls that created tasks, whose progress continues."""

    @cached_property
    def info(self) -> bytes:
        """The upstream's server info, as JSON."""
        return encode(self.server.info)

    async def open(
        self,
        address: Address,
        capabilities: Mapping[str, Any],
        info: Mapping[str, Any],
        limits: HandshakeLimits,
        era: str,
    ) -> None:
        """Connect and perform the handshake; raises TargetError."""
        hello = ClientHello(info, capabilities, self._serve, self._on_notification, limits, era)
        self.exchange, self.server = await open_exchange(address, hello)
        self.modern = self.server.version.modern
        self.exchange.on_stream_closed = self._on_stream_closed
        self.exchange.on_late_progress = self._on_late_progress

    async def request(
        self,
        method: str,
        params: Data,
        *,
        timeout: float,
        id: bytes = b"",
        call: Call | None = None,
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> bytes:
        """Send a request and wait for its raw result, for a client's call or for our own use.

        Raises ServerError with the upstream's own error, TargetError for other failures.
        """
        exchange = self.exchange
        id = id or exchange.next_id()
        if call is None:
            return await exchange.request(id, method, params, timeout=timeout, headers=headers)
        token = call.request.meta.progress_token
        call.sent_id = id
        self.calls[id] = call
        self.is_used = True
        self.attach(call.caller)
        try:
            return await exchange.request(
                id,
                method,
                params,
                timeout=timeout,
                headers=headers,
                progress=(lambda raw: _progress(call, raw)) if token else None,
                is_task=call.is_task,
            )
        except ServerError:
            raise
        except BaseException:
            self.abandon(call)
            raise
        finally:
            del self.calls[id]

    def abandon(self, call: Call) -> None:
        """Record that a call ended without an answer: a later question may still be its."""
        is_same = self._abandoned is None or self._abandoned is call.caller
        self._abandoned = call.caller if is_same else _SEVERAL

    def attach(self, caller: Caller) -> None:
        """Record that this client uses the session."""
        # A client without a session receives notifications only through its calls.
        if caller is not self.latest and caller.session is not None:
            self.latest = caller
            self.callers.add(caller)

    @property
    def awaits_roots(self) -> bool:
        """True until the upstream has read its client's roots, if it does so at its start."""
        return self.reads_roots and not self._roots_settled

    async def wait_for_roots(self, call: Call, timeout: float) -> None:
        """Wait until the upstream has the roots; a modern client gets the question by this call."""
        self._waiting = call
        try:
            async with asyncio.timeout(_START_S):
                await self._roots_asked.wait()
            async with asyncio.timeout(min(timeout, _ANSWER_S)):
                await self._roots_answered.wait()
                await asyncio.sleep(_SETTLE_S)
                with contextlib.suppress(McpError):
                    await self.request("ping", b"{}", timeout=timeout)
        except TimeoutError:
            pass  # it reads none this time, or its client does not answer
        finally:
            self._waiting = None
        self._roots_settled = True

    def keep_progress(self, call: Call) -> None:
        """Pass on the progress of the task that a call created, for as long as it runs."""
        self._progress[call.sent_id] = call
        if len(self._progress) > MAX_TASKS:
            del self._progress[next(iter(self._progress))]

    # Messages of the upstream.

    def _on_late_progress(self, token: bytes, params: bytes) -> None:
        call = self._progress.get(token)
        created = None if call is None else call.context.created
        if call is None or created is None:
            return
        if created.tell is not None:
            created.tell(params)
        elif not self.hides_tasks and not call.request.version.modern:
            self._deliver(None, call.caller, _progress_message(call, params))

    async def _serve(self, method: str, params: bytes, about: bytes) -> bytes:
        if method == "ping":
            return b"{}"
        if not self.may_ask and needed_capability(method, {})[0]:
            raise McpError(refused_question(method, self.name), METHOD_NOT_FOUND)
        call, caller = self._target(about, params)
        capability = needed_capability(method, {})[0]
        if capability:
            is_start = capability == "roots" and not self.is_used
            self._watcher.asked(frozenset({capability, "start"} if is_start else {capability}))
        if caller is None or (self.is_told and not self._is_certain(call, about)):
            raise McpError(
                f"{method[:80]} is refused: several clients share this server, and the "
                "question does not name its call",
                INTERNAL_ERROR,
            )
        try:
            # roots/list has no params
            return await self._ask(method, params or b"{}", call, caller)
        finally:
            if capability == "roots":
                self._roots_answered.set()

    async def _ask(self, method: str, params: bytes, call: Call | None, caller: Caller) -> bytes:
        """Return the client's answer."""
        try:
            fields = msgspec.json.decode(params, type=dict[str, Any])
        except (msgspec.DecodeError, RecursionError) as error:
            raise McpError(f"params of {method[:80]}: {error}", INVALID_PARAMS) from None
        capability, part = needed_capability(method, fields)
        if capability and not declares(caller.capabilities, capability, part):
            if call is not None:
                call.require_capability(capability, part)
            raise McpError(f"the client does not support {method}", METHOD_NOT_FOUND)
        if capability == "roots":
            self._roots_asked.set()
            # After a question, no other client's call is sent to a process that all shared.
            if self.owner is None and not self.is_told:
                raise McpError("roots/list is refused: several clients share this server")
            self.has_client_roots = True
        if call is None or not call.request.version.modern:  # else the question is part of a result
            params = for_session(caller.session, method, params, self.name)
        token = progress_token(fields.get("_meta"))
        if token is not None:
            self.asked_tokens[token] = caller
        try:
            if call is not None:
                return await call.ask(method, params)
            return await ask_session(caller, method, params)
        except AskError as error:
            raise McpError(str(error), error.code, error.data) from None
        finally:
            self.asked_tokens.pop(token, None)

    def _is_certain(self, call: Call | None, about: bytes) -> bool:
        """True if a question on a shared session is this call's, whatever else may still run."""
        if call is None:
            return False
        return about in self.calls or self._abandoned is None or self._abandoned is call.caller

    def _on_stream_closed(self, id: bytes) -> None:
        """Close the client's stream as the upstream closed its own."""
        call = self.calls.get(id)
        if call is not None:
            call.outbox.close_stream()

    def _on_notification(self, method: str, params: bytes, about: bytes) -> None:
        if method in _LISTS:
            self._watcher.list_changed(self, _LISTS[method])
        elif method == "notifications/resources/updated":
            try:
                uri = msgspec.json.decode(params, type=_Updated).uri
            except msgspec.DecodeError:
                return
            self._watcher.updated(self, uri, params)
        elif method == "notifications/message":
            self._forward_log(method, params, about)
        elif method != "notifications/subscriptions/acknowledged":
            task = task_in(method, params)
            if task is not None and task.id in self.tasks:
                self.tasks.note(task, is_fetched=False)
            if method in (_TASKS, _TASK_STATUS) and self.hides_tasks:
                return
            if method == _TASKS and not about:
                about = subscription_of(params)
            if method != _TASK_STATUS:
                self._forward(method, params, about)
            else:
                self._forward_task(method, params, about)

    def _forward_log(self, method: str, params: bytes, about: bytes) -> None:
        call, caller = self._target(about)
        if caller is None:
            return
        threshold = caller.level
        if call is not None and call.request.version.modern:
            # Only a request that set a level gets messages (2026-07-28, logging).
            threshold = call.request.meta.log_level
            if not threshold:
                return
        try:
            level = msgspec.json.decode(params, type=_Log).level
        except msgspec.DecodeError:
            return
        if is_level_enabled(level, threshold):
            self._deliver(call, caller, notification(method, params))

    def _forward_task(self, method: str, params: bytes, about: bytes) -> None:
        """Forward the state of a legacy task, to legacy clients only."""
        call, caller = self._target(about)
        if caller is not None and (call is None or not call.request.version.modern):
            self._deliver(call, caller, notification(method, params))

    def _forward(self, method: str, params: bytes, about: bytes) -> None:
        call, caller = self._target(about)
        if caller is not None:
            self._deliver(call, caller, notification(method, params))

    def _deliver(self, call: Call | None, caller: Caller, message: bytes) -> None:
        if call is not None:
            call.outbox.send(message)
        elif caller.session is not None and caller.session.version is not None:
            caller.session.send(message)  # modern clients get only what they requested

    def _target(self, about: bytes, params: bytes = b"") -> tuple[Call | None, Caller | None]:
        """Return the only call and client that a message of the upstream can belong to."""
        call = self.calls.get(about)
        if call is None and may_mention(params, _RELATED):
            call = self._call_about(related_task(params))
        if call is not None:
            return call, call.caller
        if self.owner is not None:
            latest = next(reversed(self.calls.values()), self._waiting)
            return latest, latest.caller if latest is not None else self.owner
        latest = None
        for call in self.calls.values():
            if latest is not None and latest.caller is not call.caller:
                return None, None
            latest = call
        if latest is not None:
            # Of several calls of a modern client, only one can carry it.
            if len(self.calls) > 1 and latest.request.version.modern:
                return None, None
            return latest, latest.caller
        return None, next(iter(self.callers)) if len(self.callers) == 1 else None

    def _call_about(self, task: str) -> Call | None:
        """Return the call that waits for the result of a task: its client gets its questions."""
        for call in self.calls.values():
            request = call.request
            if request.method == "tasks/result" and task_id(request.params) == task:
                return call
        return None


def notification(method: str, params: bytes) -> bytes:
    """Return a notification with these raw params."""
    named = b'{"jsonrpc":"2.0","method":' + encode(method)
    return named + (b',"params":' + params + b"}" if params else b"}")


def _progress(call: Call, params: bytes) -> None:
    """Forward progress under the client's own token."""
    call.outbox.send(_progress_message(call, params))


def _progress_message(call: Call, params: bytes) -> bytes:
    fields = members(params)
    fields["progressToken"] = Raw(call.request.meta.progress_token)
    return notification("notifications/progress", encode(fields))


def progress_token(fields: Any) -> str | int | None:
    """Return the progress token among these fields; None if there is none."""
    token = fields.get("progressToken") if isinstance(fields, dict) else None
    return token if isinstance(token, str | int) else None
