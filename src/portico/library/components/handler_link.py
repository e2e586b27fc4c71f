"""Middleware in a process of its own, as a link: its component handles requests one by one.

Its lists are read once per catalog, so that what it hides is hidden everywhere: the component gets
each list as a request, with the lists behind it as the answer to `next`.
"""

import asyncio
from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from portico.core.model.context import Ask, Context
from portico.core.model.errors import (
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    InvalidParams,
    McpError,
)
from portico.core.model.message import Request, Response
from portico.core.model.methods import KNOWN, LIST_KINDS, METHODS_WITH_TARGET
from portico.core.model.offer import KEYS, Listed, Offer
from portico.core.model.types import Answer, Change, Handler
from portico.core.model.version import MODERN
from portico.core.protocol.codec import decoded, encode
from portico.core.protocol.eras import CAPABILITIES_KEY, VERSION_KEY, members
from portico.core.state.client_sessions import SESSIONS
from portico.library.chain.fold import COMPONENT
from portico.library.chain.views import Learner, ViewPending
from portico.library.components.handler_answer import failure_of, response_of
from portico.library.components.handler_worker import HandlerWorker
from portico.library.wasm.handler_protocol import ASK, CHANGED, LOG, NEXT, PROGRESS, UPDATED

if TYPE_CHECKING:
    from portico.library.chain.endpoint import ChainEndpoint

_MAX_KNOWN = 32
"""The offers whose lists are known."""
_MAX_PAGES = 100
_ATTEMPTS = 3
_RETRY_S = 30.0
"""The time after which lists that could not be read are read again."""
_META = {VERSION_KEY: MODERN[-1].text, CAPABILITIES_KEY: {}}
_TOLD = (PROGRESS, LOG, UPDATED, CHANGED)


class _Sent(Struct):
    """A request that a component passes on."""

    method: str
    id: Raw
    params: Raw | UnsetType = UNSET


class _Target(Struct):
    name: str = ""
    uri: str = ""
    cursor: str = ""


class _Question(Struct):
    method: str
    params: dict[str, Any] = {}


class _Told(Struct):
    what: str
    params: dict[str, Any] = {}


class HandlerLink(Learner):
    """A link whose work is done by a component in another process."""

    def __init__(self, name: str, make: Callable[[], HandlerWorker], file: str = "") -> None:
        """`make` creates the worker, inside the running event loop; `file` is its component."""
        self.__name__ = name
        self._session_scope = f"link {name} {file}"
        setattr(self, COMPONENT, name)
        self._make = make
        self._worker: HandlerWorker | None = None
        self._known: dict[bytes, dict[str, Listed] | McpError] = {}
        self._offers: dict[bytes, Offer] = {}
        """The offers whose lists are known."""
        self._learning: dict[bytes, asyncio.Task[None]] = {}
        self._stale: set[bytes] = set()
        """The offers whose lists the component has changed since they were last read."""
        self.endpoints: WeakSet[ChainEndpoint] = WeakSet()

    @property
    def worker(self) -> HandlerWorker:
        """The process of the component."""
        if self._worker is None:
            self._worker = self._make()
        return self._worker

    def __call__(self, next: Handler) -> Handler:
        """Return the handler that passes requests to the component."""

        def handle(request: Request, context: Context) -> Answer:
            if not request.id or not _is_handled(request.method):
                return next(request, context)  # lists are known from the view
            return self._handle(request, context, next)

        return handle

    async def _handle(self, request: Request, context: Context, next: Handler) -> Response:
        passed: list[Response] = []

        async def act(method: str, params: dict[str, Raw]) -> bytes:
            if method == NEXT:
                sent, id = _derived(request, params.get("request", Raw(b"")), self.__name__)
                response = await next(sent, context)
                passed.append(response)
                return encode({"response": Raw(replace(response, id=id).encode())})
            if method == ASK:
                return await _ask(context, params)
            return await self._tell(request, context, params)

        message = _message(request.method, request.id, request.params)
        session = SESSIONS.id_of(context, self._session_scope)
        raw = await self.worker.handle(message, act, session)
        return response_of(request, raw, passed, self.__name__)

    async def _tell(self, request: Request, context: Context, params: dict[str, Raw]) -> bytes:
        told = _converted(encode(params), _Told, "portico/tell")
        given = told.params
        if told.what == PROGRESS:
            await context.progress(
                float(given.get("progress", 0)), given.get("total"), given.get("message")
            )
        elif told.what == LOG:
            try:
                await context.log(str(given.get("level")), given.get("data"), given.get("logger"))
            except ValueError as error:
                raise InvalidParams(str(error)) from None
        elif told.what == UPDATED:
            for endpoint in tuple(self.endpoints):
                endpoint.publish(Change("resources", str(given.get("uri", ""))), request, context)
        elif told.what == CHANGED:
            for key, offer in tuple(self._offers.items()):
                self._stale.add(key)
                if key not in self._learning:
                    self._learning[key] = asyncio.ensure_future(self._learn(key, offer))
        else:
            raise InvalidParams(f"{told.what[:40]!r} must be one of {', '.join(_TOLD)}")
        return b"{}"

    # Its lists.

    def view(self, offer: Offer) -> Offer:
        """Return an offer as the component lists it; raises ViewPending until that is known."""
        key = _digest(offer)
        known = self._known.get(key)
        if isinstance(known, McpError):
            raise known
        if known is not None:
            return replace(offer, lists={**offer.lists, **known}) if known else offer
        task = self._learning.get(key)
        if task is None:
            task = self._learning[key] = asyncio.ensure_future(self._learn(key, offer))
        raise ViewPending(self.__name__, task)

    async def _learn(self, key: bytes, offer: Offer) -> None:
        known: dict[str, Listed] | McpError | None = None
        try:
            while known is None or key in self._stale:
                self._stale.discard(key)
                known = await self._read(offer)
        finally:
            del self._learning[key]
        while len(self._known) >= _MAX_KNOWN:
            oldest = next(iter(self._known))
            del self._known[oldest], self._offers[oldest]
        is_new = self._known.get(key) != known
        self._known[key], self._offers[key] = known, offer
        if isinstance(known, McpError):
            asyncio.get_running_loop().call_later(_RETRY_S, self._forget, key)
        for endpoint in tuple(self.endpoints) if is_new else ():
            endpoint.views_changed()

    async def _read(self, offer: Offer) -> dict[str, Listed] | McpError:
        try:
            return await self._lists(offer)
        except McpError as error:
            return error
        except Exception as error:  # noqa: BLE001  (reading must end)
            return McpError(f"{self.__name__}: {error!r}")

    def _forget(self, key: bytes) -> None:
        """Read the lists again that could not be read."""
        if isinstance(self._known.get(key), McpError):
            del self._known[key], self._offers[key]
            for endpoint in tuple(self.endpoints):
                endpoint.views_changed()

    async def _lists(self, offer: Offer) -> dict[str, Listed]:
        """Return all lists; a worker that ends meanwhile gets another chance."""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                found = {kind: await self._listed(kind, offer) for kind in LIST_KINDS}
            except McpError as error:
                is_lost = isinstance(error.data, dict) and error.data.get("kind") == "exited"
                if attempt == _ATTEMPTS or not is_lost:
                    raise
                continue
            return {kind: made for kind, made in found.items() if made is not offer.listed(kind)}
        raise AssertionError

    async def _listed(self, kind: str, offer: Offer) -> Listed:
        behind, (method, field) = (
            offer.listed(kind),
            (LIST_KINDS[kind].method, LIST_KINDS[kind].field),
        )

        async def act(wish: str, params: dict[str, Raw]) -> bytes:
            if wish != NEXT:
                if wish == ASK:
                    raise McpError("a component cannot ask while it lists")
                return b"{}"
            sent = _converted(bytes(params.get("request", b"")), _Sent, NEXT)
            if sent.method not in _METHODS:
                raise McpError(f"{sent.method[:80]} cannot be called while lists are read")
            of = _METHODS[sent.method]
            items = [Raw(item) for item in offer.listed(of).items]
            result = encode({LIST_KINDS[of].field: items, "resultType": "complete"})
            response = Response(id=bytes(sent.id), result=result)
            return encode({"response": Raw(response.encode())})

        items: list[Raw] = []
        cursor: str | None = None
        for page in range(_MAX_PAGES):
            params = {"_meta": _META} | ({} if cursor is None else {"cursor": cursor})
            request = Request(
                method=method, id=b"%d" % page, params=encode(params), version=MODERN[-1]
            )
            raw = await self.worker.handle(_message(method, request.id, request.params), act)
            response = response_of(request, raw, [], self.__name__)
            if response.error:
                if response.code == METHOD_NOT_FOUND:
                    return behind
                raise failure_of(response, self.__name__, method)
            fields = members(response.result)
            items += _converted(bytes(fields.get(field, b"[]")), list[Raw], method)
            cursor = decoded(fields.get("nextCursor", b""), str)
            if not cursor:
                break
        return _as_listed(kind, behind, items, self.__name__)


_METHODS = {kind.method: name for name, kind in LIST_KINDS.items()}


def _as_listed(kind: str, behind: Listed, items: Iterable[Raw], name: str) -> Listed:
    """Return the items of a list; the same object if nothing differs."""
    raws = tuple([bytes(item) for item in items])
    if raws == behind.items:
        return behind
    found: dict[str, bytes] = {}
    for raw in raws:
        fields = members(raw)
        key = decoded(fields.get(KEYS[kind], b""), str)
        if not key:
            raise McpError(f"{name} lists an item without {KEYS[kind]!r} in {kind}")
        found.setdefault(key, raw)
    return replace(behind, items=tuple(found.values()), keys=tuple(found), page_size=0)


def _is_handled(method: str) -> bool:
    """True for the requests that a component gets; lists are known from its view."""
    return method in METHODS_WITH_TARGET or method not in KNOWN


def _message(method: str, id: bytes, params: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":%b,"method":%b,"params":%b}' % (
        id,
        encode(method),
        params or b"{}",
    )


def _derived(request: Request, raw: bytes, name: str) -> tuple[Request, bytes]:
    """Return the request that a component passes on, and its id for the answer."""
    sent = decoded(raw, _Sent)
    if sent is None:
        raise McpError(f"{name} called next with text that is not a request", INVALID_REQUEST)
    params = b"" if isinstance(sent.params, UnsetType) else bytes(sent.params)
    if sent.method == request.method and params == (request.params or b"{}"):
        return request, bytes(sent.id)
    if not _is_handled(sent.method) and sent.method not in _METHODS:
        what = f"{sent.method[:80]!r}, which middleware does not handle"
        raise McpError(f"{name} called next with {what}", METHOD_NOT_FOUND)
    target = _converted(params or b"{}", _Target, sent.method)
    derived = Request(
        method=sent.method,
        id=request.id,
        params=params,
        version=request.version,
        meta=request.meta,
        name=target.name,
        uri=target.uri,
        cursor=target.cursor,
        timeout_s=request.timeout_s,
        asked=request.asked,
        is_derived=True,
    )
    return derived, bytes(sent.id)


async def _ask(context: Context, params: dict[str, Raw]) -> bytes:
    """Put a component's question to the client, and return the answer."""
    question = _converted(encode(params), _Question, ASK)
    kinds = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling"}
    if question.method not in kinds:
        raise McpError(f"a component cannot ask for {question.method[:80]}", INVALID_REQUEST)
    capability = kinds[question.method]
    mode = "form" if capability == "elicitation" else ""
    key = f"{capability}-{blake2b(encode(question.params), digest_size=8).hexdigest()}"
    ask = Ask(question.method, question.params, capability, mode)
    return encode((await context.ask({key: ask}))[key])


def _converted(raw: bytes, type: Any, what: str) -> Any:
    try:
        return msgspec.json.decode(raw, type=type)
    except msgspec.DecodeError as error:
        raise InvalidParams(f"{what}: {error}") from None


def _digest(offer: Offer) -> bytes:
    digest = blake2b(digest_size=16)
    for kind in LIST_KINDS:
        digest.update(kind.encode())
        for item in offer.listed(kind).items:
            digest.update(b"%d:" % len(item))
            digest.update(item)
    return digest.digest()
