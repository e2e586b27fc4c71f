"""One upstream as Portico's clients see it: always there, whatever becomes of its processes."""

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Raw, Struct

from portico.catalog.facts import Facts
from portico.catalog.upstream import UpstreamCatalog
from portico.model.context import Context
from portico.model.errors import INTERNAL_ERROR, AskError, McpError, TargetError
from portico.model.message import Request, Response
from portico.model.session import LOG_LEVELS
from portico.model.types import Change
from portico.protocol.codec import encode
from portico.protocol.eras import (
    URL_REQUIRED,
    error_code,
    legacy_params,
    legacy_question,
    legacy_result,
    members,
    modern_params,
    modern_result,
    pages_to_visit,
    same_era_params,
    with_code,
)
from portico.protocol.methods import TABLE
from portico.state.hub import ChangeHub
from portico.upstream.caller import Call, Caller, Callers
from portico.upstream.exchange import ServerError
from portico.upstream.gate import Gate
from portico.upstream.held import HeldCall, HeldCalls, Questions
from portico.upstream.leg import Leg
from portico.upstream.line import Line, Plan
from portico.upstream.lines import LEGACY, MODERN, Lines
from portico.upstream.mirror import mirrored_headers
from portico.upstream.opening import modern_meta
from portico.upstream.patience import Breaker
from portico.upstream.survey import survey
from portico.upstream.wire import Address

MAX_ROUNDS = 10
REFRESH_S = 1.0
"""However often an upstream says that its lists have changed, they are fetched no more often."""
TIMEOUT_KEY = "portico/timeoutS"
"""In a request's `_meta`: how long this call may take."""
_GONE = ("exited", "closed", "network")
_PARAM_PREFIX = "mcp-param-"
_READ_ONLY = ("resources/read", "prompts/get", "completion/complete")


class Memory(Protocol):
    """Where facts outlive the process."""

    def load(self, key: str) -> Facts | None:
        """What was last saved."""
        ...

    def save(self, key: str, facts: Facts) -> bool:
        """Keep it; False if that failed."""
        ...


class _Peek(Struct):
    resultType: str = ""  # noqa: N815  (a field of the wire)


class _Hints(Struct):
    readOnlyHint: bool = False  # noqa: N815  (fields of the wire)
    idempotentHint: bool = False  # noqa: N815


class _Annotated(Struct):
    annotations: _Hints | None = None


class View:
    """What the upstream offers to one sort of client."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.catalog: UpstreamCatalog | None = None
        self.hub = ChangeHub()
        self.surveying: asyncio.Task[None] | None = None
        self.stale = False
        """True if its lists have changed since they were last asked for."""


class Upstream:
    """Answers for one upstream: from memory what is static, over its lines all else."""

    def __init__(
        self,
        address: Address,
        plan: Plan,
        *,
        memory: Memory | None = None,
        key: Callable[[str], str] = lambda view: view,
        report: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`key` names a view in the memory; `report` is told what an operator should know."""
        self.name = address.name
        self.plan = plan
        self._memory = memory
        self._key = key
        self._report = report
        self._clock = clock
        self._breaker = Breaker(self.name, plan.patience)
        self._gate = Gate(self.name, plan.max_in_flight, plan.max_queue)
        self._held = HeldCalls(plan.held_s, plan.max_held, self.name)
        self._callers = Callers()
        self._lines = Lines(address, plan, self._breaker, self, self)
        self._views: dict[str, View] = {}
        self._levels: WeakKeyDictionary[Caller, str] = WeakKeyDictionary()
        self._background: set[asyncio.Task[None]] = set()
        self._numbers = 0
        self._closed = False

    # What is known of it.

    def view(self, request: Request, context: Context) -> View:
        """What this client is offered; from memory, where that has it."""
        modern = request.version.modern
        caller = self._callers.of(request, context)
        view = self._seen(self._lines.view(caller, modern))
        wanted = self._lines.view(caller, modern)
        return view if view.name == wanted else self._seen(wanted)

    def _seen(self, name: str) -> View:
        view = self._views.get(name)
        if view is None:
            view = self._views[name] = View(name)
            facts = self._memory.load(self._key(name)) if self._memory is not None else None
            if facts is not None:
                era = MODERN if facts.version.modern else LEGACY
                self._lines.speaks.setdefault(era, True)
                if not name.startswith(era):  # it was asked in the other era, to no avail
                    self._lines.speaks.setdefault(LEGACY if era == MODERN else MODERN, False)
                self._numbers += 1
                view.catalog = UpstreamCatalog(
                    facts, confirmed=False, number=self._numbers, clock=self._clock
                )
        return view

    async def ready(self, request: Request, context: Context) -> View:
        """The same, with a catalog for sure: the upstream is started and asked if need be."""
        view = self.view(request, context)
        if view.catalog is not None:
            return view
        caller = self._callers.of(request, context)
        modern = request.version.modern
        try:
            line = self._lines.take(caller, modern)
            line.begin()
            try:
                leg = await line.leg()
                # Its era may be another than we thought, and with it the view.
                view = self.view(request, context)
                if view.catalog is None:
                    await asyncio.shield(self._survey(view, leg))
            finally:
                line.end(answered=view.catalog is not None)
                self._lines.give_back(line)
        except TargetError as error:
            raise failed(error) from None
        if view.catalog is None:
            raise McpError(f"{self.name} does not say what it offers")
        return view

    async def refresh(self) -> None:
        """Ask for all lists anew, wherever there is a conversation, and begin one if there is
        none; raises TargetError."""
        lines = [line for line in self._lines if line.open_leg is not None]
        for line in lines or [self._lines.shared(self._lines.era(MODERN in self._views))]:
            leg = await line.leg()
            await self._survey(self._seen(line.view), leg)

    def warm(self, request: Request, context: Context) -> None:
        """Begin the conversation that this client will need."""
        caller = self._callers.of(request, context)
        self._spawn(self._warm(self._lines.take(caller, request.version.modern)))

    async def _warm(self, line: Line) -> None:
        try:
            await line.leg()
        except TargetError as error:
            self._report(str(error))
        finally:
            self._lines.give_back(line)

    # What clients ask of it.

    async def relay(self, request: Request, context: Context) -> Response:
        """The upstream's answer to a request; raises McpError if there is none."""
        try:
            return await self._relay(request, context)
        except TargetError as error:
            raise failed(error) from None

    async def _relay(self, request: Request, context: Context) -> Response:
        modern = request.version.modern
        if modern and (held := self._held.returning(request, context)) is not None:
            return await self._go_on(held)
        caller = self._callers.of(request, context)
        if request.method in ("resources/subscribe", "resources/unsubscribe"):
            return await self._subscribe(request, context, caller)
        if modern and not self._lines.speaks.get(MODERN):
            held = HeldCall(caller, request, context)
            held.start(self._fetch(held))
            return await self._go_on(held)
        call = Call(caller, request, context)
        return await self._answer(call, self._fetch(call))

    async def _go_on(self, call: HeldCall) -> Response:
        return await self._answer(call, call.next())

    async def _answer(self, call: Call, outcome: Any) -> Response:
        """The response; what the upstream said before it has reached the client by then."""
        try:
            result = await outcome
        except ServerError as error:
            await call.outbox.flush()
            return Response(id=call.request.id, error=error.raw, code=error.code)
        await call.outbox.flush()
        if isinstance(result, Questions):
            assert isinstance(call, HeldCall)
            result = self._held.keep(call, result)
        return Response(id=call.request.id, result=result)

    async def _fetch(self, call: Call) -> bytes:
        """The raw result, in the client's own era; begun again if that cannot do harm."""
        timeout = self._timeout(call)
        self._breaker.check()
        try:
            await self._gate.enter(timeout)
        except BaseException:
            self._breaker.withdrawn()
            raise
        try:
            try:
                return await self._try(call, timeout)
            except TargetError as error:
                if not self._may_repeat(call, error):
                    raise
            return await self._try(call, timeout)
        finally:
            self._gate.leave()
            self._breaker.withdrawn()

    async def _try(self, call: Call, timeout: float) -> bytes:
        line = self._lines.take(call.caller, call.request.version.modern)
        line.begin()
        answered = False
        try:
            leg = await line.leg()
            result = await self._over(leg, call, timeout)
            answered = True
        except McpError:
            answered = True
            raise
        except TargetError as error:
            if error.kind == "timeout":
                self._breaker.failed("did not answer in time")
            raise
        else:
            return result
        finally:
            line.end(answered)
            self._lines.give_back(line)

    async def _over(self, leg: Leg, call: Call, timeout: float) -> bytes:
        modern = call.request.version.modern
        try:
            if leg.modern == modern:
                id = leg.exchange.next_id()
                params = same_era_params(call.request, id)
                return await self._send(leg, call, id, params, timeout)
            if leg.modern:
                return await self._in_rounds(leg, call, timeout)
            id = leg.exchange.next_id()
            params = legacy_params(call.request.params, id)
            result = await self._send(leg, call, id, params, timeout)
            return modern_result(call.request.method, result, self._server_info(leg))
        except ServerError as error:
            if leg.modern == modern or not error.raw:
                raise
            if modern and error.code == URL_REQUIRED:
                asked = pages_to_visit(error.raw)
                if asked:
                    return encode({"resultType": "input_required", "inputRequests": asked})
            code = error_code(call.request.method, error.code, modern)
            if code != error.code:
                error.raw, error.code = with_code(error.raw, code), code
            raise

    async def _send(self, leg: Leg, call: Call, id: bytes, params: bytes, timeout: float) -> bytes:
        request = call.request
        if not (leg.modern and leg.exchange.wire.mirrors):
            return await leg.request(request.method, params, timeout=timeout, id=id, call=call)
        headers = self._headers(leg, call)
        return await leg.request(
            request.method, params, timeout=timeout, id=id, call=call, headers=headers
        )

    async def _in_rounds(self, leg: Leg, call: Call, timeout: float) -> bytes:
        """A legacy client's call at a modern upstream: what a result asks, the client is asked."""
        sender = call.caller.sender(leg.server.version)
        if not sender.level and "logging" in leg.server.capabilities:
            sender = msgspec.structs.replace(sender, level="info")  # until the client sets one
        fields = dict(members(call.request.params))
        for _ in range(MAX_ROUNDS):
            id = leg.exchange.next_id()
            params = modern_params(encode(fields), sender, id)
            result = await self._send(leg, call, id, params, timeout)
            if msgspec.json.decode(result, type=_Peek).resultType != "input_required":
                return legacy_result(result)
            fields = dict(members(call.request.params)) | await self._ask_all(call, result)
        raise TargetError(
            f"{self.name} asked for more input in {MAX_ROUNDS} rounds of {call.request.method}",
            kind="protocol",
            server=self.name,
        )

    async def _ask_all(self, call: Call, result: bytes) -> dict[str, Raw]:
        asked = members(result)
        questions = members(asked.get("inputRequests", b""))

        async def put(raw: bytes) -> Raw:
            question = members(raw)
            method = msgspec.json.decode(question.get("method", b'""'), type=str)
            params = legacy_question(
                method,
                members(question.get("params", b"")),
                call.request.version,
                os.urandom(16).hex(),
            )
            try:
                return Raw(await call.ask(method, params))
            except AskError as error:
                if method == "elicitation/create":
                    return Raw(b'{"action":"cancel"}')
                raise McpError(str(error), error.code, error.data) from None

        answers = await asyncio.gather(*(put(raw) for raw in questions.values()))
        added = {"inputResponses": Raw(encode(dict(zip(questions, answers, strict=True))))}
        if not questions:
            added = {}
        if "requestState" in asked:
            added["requestState"] = asked["requestState"]
        return added

    async def _subscribe(self, request: Request, context: Context, caller: Caller) -> Response:
        """Follow a resource for a client; the upstream is told once, however many follow it."""
        session = context.session
        assert session is not None  # the core sees to that
        line = self._lines.first(caller, request.version.modern)
        try:
            if request.method == "resources/unsubscribe":
                await line.unfollow(request.uri, session)
            else:
                await line.follow(request.uri, session)
                session.when_over(lambda: self._unfollow(line, request.uri, session))
        except ServerError as error:
            return Response(id=request.id, error=error.raw, code=error.code)
        return Response(id=request.id, result=b"{}")

    def _unfollow(self, line: Line, uri: str, session: object) -> None:
        if not self._closed:
            self._spawn(line.unfollow(uri, session))

    async def set_level(self, level: str, request: Request, context: Context) -> None:
        """A client wants log messages from this level on."""
        caller = self._callers.of(request, context)
        caller.level = level
        self._levels[caller] = level
        line = self._lines.first(caller, request.version.modern)
        if line.owner is None:
            level = min(self._levels.values(), key=LOG_LEVELS.index)
        try:
            await line.set_level(level)
        except TargetError as error:
            raise failed(error) from None

    def notice(self, request: Request, context: Context) -> None:
        """Pass on what a client says without waiting for an answer."""
        caller = self._callers.of(request, context)
        modern = request.version.modern
        if self._lines.is_own(caller, modern) and caller.session is None:
            return  # nothing says which of its calls it is about
        line = self._lines.first(caller, modern)
        leg = line.open_leg
        if leg is not None and leg.modern == modern:
            self._spawn(self._tell(leg, request))

    async def _tell(self, leg: Leg, notice: Request) -> None:
        try:
            await leg.exchange.tell(notice.method, notice.params)
        except TargetError as error:
            self._report(f"{notice.method} did not reach {self.name}: {error}")

    # What its lines tell.

    def opened(self, line: Line, leg: Leg) -> None:
        """A conversation has begun: see whether what we know is still true."""
        self._lines.learned(line, leg)
        view = self._seen(line.view)
        if view.surveying is None and view.catalog is not None:
            self._survey(view, leg)

    def list_changed(self, leg: Leg) -> None:
        """Its lists have changed: ask for them, but not all the time."""
        line = next((line for line in self._lines if line.open_leg is leg), None)
        if line is None:
            return
        view = self._seen(line.view)
        if view.surveying is None:
            self._survey(view, leg)
        else:
            view.stale = True

    def updated(self, leg: Leg, uri: str, params: bytes) -> None:
        """A resource has changed."""
        for view in self._views.values():
            view.hub.publish(Change("resources", uri, params))

    def _survey(self, view: View, leg: Leg) -> "asyncio.Task[None]":
        """Ask for all lists; again if they change meanwhile, at most once a second."""
        if view.surveying is None:
            first: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            view.surveying = self._spawn(self._surveys(view, leg, first))
            view.surveying.add_done_callback(lambda _: setattr(view, "surveying", None))
            return self._spawn(_wait(first))
        return self._spawn(_wait(view.surveying))

    async def _surveys(self, view: View, leg: Leg, first: "asyncio.Future[None]") -> None:
        try:
            while True:
                view.stale = False
                await self._ask_lists(view, leg)
                if not first.done():
                    first.set_result(None)
                await asyncio.sleep(REFRESH_S)
                if not view.stale or leg.exchange.is_over():
                    return
        except (TargetError, McpError) as error:
            if not first.done():
                first.set_exception(error)
                first.exception()
            self._report(f"the lists of {self.name} cannot be refreshed: {error}")
        finally:
            if not first.done():
                first.cancel()

    async def _ask_lists(self, view: View, leg: Leg) -> None:
        modern, mirrors = leg.modern, leg.exchange.wire.mirrors
        version = leg.server.version

        async def ask(method: str, params: Mapping[str, Any]) -> bytes:
            sent = dict(params)
            headers: dict[str, str] = {}
            if modern:
                sent["_meta"] = modern_meta(version, self.plan.info, {})
                if mirrors:
                    headers = mirrored_headers(method, sent, version)
            timeout = self.plan.limits.list_s
            return await leg.request(method, encode(sent), timeout=timeout, headers=headers)

        before = view.catalog
        facts = await survey(
            ask,
            self.name,
            leg.server,
            now=self._clock(),
            before=before.facts if before is not None else None,
            mirrors=modern and mirrors,
            report=self._report,
        )
        self._numbers += 1
        catalog = UpstreamCatalog(facts, confirmed=True, number=self._numbers, clock=self._clock)
        view.catalog = catalog
        if before is not None:
            for kind in catalog.changed(before):
                view.hub.publish(Change(kind))
        if self._memory is not None and not (
            before is not None and before.confirmed and facts.same(before.facts)
        ):
            await self._remember(view, facts)

    async def _remember(self, view: View, facts: Facts) -> None:
        assert self._memory is not None
        era = MODERN if facts.version.modern else LEGACY
        names = [view.name]
        # Who would have begun in the other era finds out from memory that it is not spoken.
        other = LEGACY if era == MODERN else MODERN
        if self._lines.speaks.get(other) is False:
            names.append(other)
        for name in names:
            await asyncio.to_thread(self._memory.save, self._key(name), facts)

    # The rest.

    async def close(self) -> None:
        """End all conversations, and whatever was started for them."""
        self._closed = True
        self._held.close()
        for task in tuple(self._background):
            task.cancel()
        if self._background:
            await asyncio.wait(self._background)
        await self._lines.close()

    def status(self) -> dict[str, Any]:
        """How it is, for people."""
        return {
            "server": self.name,
            "breaker": "open" if self._breaker.is_open else "closed",
            "held": len(self._held),
            "connections": [
                {
                    "state": str(line.state),
                    "busy": line.busy,
                    "starts": line.starts,
                    "shared": line.owner is None,
                    "subscriptions": len(line.subscriptions),
                }
                for line in self._lines
            ],
            "lists": {
                kind: len(listed.items)
                for view in self._views.values()
                if view.catalog is not None
                for kind, listed in view.catalog.facts.lists.items()
            },
        }

    def _timeout(self, call: Call) -> float:
        timeout = self.plan.limits.call_s
        if TIMEOUT_KEY.encode() in call.request.params:
            meta = members(members(call.request.params).get("_meta", b""))
            with contextlib.suppress(msgspec.DecodeError):
                timeout = msgspec.json.decode(meta.get(TIMEOUT_KEY, b"0"), type=float) or timeout
        if call.context.deadline is not None:
            left = call.context.deadline - asyncio.get_running_loop().time()
            timeout = min(timeout, max(left, 0.001))
        return timeout

    def _may_repeat(self, call: Call, error: TargetError) -> bool:
        """True if it cannot have run, or may run twice without doing more than once."""
        if self._closed:
            return False
        if error.kind == "session":
            return True
        if error.kind not in _GONE:
            return False
        if call.request.method in _READ_ONLY:
            return True
        if call.request.method != "tools/call":
            return False
        for view in self._views.values():
            tool = view.catalog.tool(call.request.name) if view.catalog is not None else None
            if tool is not None:
                hints = msgspec.json.decode(tool.modern, type=_Annotated).annotations
                return hints is not None and (hints.readOnlyHint or hints.idempotentHint)
        return False

    def _headers(self, leg: Leg, call: Call) -> dict[str, str]:
        """What HTTP mirrors of a modern request; what the client mirrored itself is passed on."""
        request = call.request
        meaning = TABLE.get((request.method, leg.server.version))
        params: dict[str, Any] = {}
        if meaning is not None and meaning.mirrored:
            params[meaning.mirrored] = getattr(request, meaning.mirrored)
        given = call.context.headers
        if given is not None and request.version.modern:
            headers = mirrored_headers(request.method, params, leg.server.version)
            headers |= {k: v for k, v in given.items() if k.startswith(_PARAM_PREFIX)}
            return headers
        view = self._views.get(MODERN)
        tool = None
        if request.method == "tools/call" and view is not None and view.catalog is not None:
            tool = view.catalog.tool(request.name)
        declared = tool.header_params if tool is not None else ()
        if declared:
            params["arguments"] = request.decode().get("arguments")
        return mirrored_headers(request.method, params, leg.server.version, declared)

    def _server_info(self, leg: Leg) -> bytes:
        return encode(leg.server.info)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task


async def _wait(other: "asyncio.Future[None]") -> None:
    await asyncio.shield(other)


def failed(error: TargetError) -> McpError:
    """A failure of ours or of the upstream's, as the answer to a call."""
    data = {"kind": error.kind, "server": error.server, **error.details}
    return McpError(str(error), INTERNAL_ERROR, data)
