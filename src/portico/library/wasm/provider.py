"""A component as a provider: its lists, fetched once, and its answers."""

import asyncio
import os
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

import msgspec

from portico.core.catalog.uris import canonical, uri_pattern
from portico.core.model.context import Context
from portico.core.model.errors import INTERNAL_ERROR, McpError
from portico.core.model.message import Request, Response
from portico.core.model.offer import KEYS, Offer
from portico.core.model.types import Answer, Change
from portico.core.protocol.eras import URL_REQUIRED
from portico.core.protocol.result_fields import EMPTY_RESULT, error_result, identified
from portico.core.state.client_sessions import SessionValues, session_id_in
from portico.core.state.report import report
from portico.library.chain.fold import terminus
from portico.library.functions.rounds import KEY_SIZE, Rounds, Suspended
from portico.library.wasm.call_client import ProvidedClient
from portico.library.wasm.calls import Calls
from portico.library.wasm.failures import GuestFailure
from portico.library.wasm.guest import Capability, GuestError
from portico.library.wasm.host_interfaces import notifies
from portico.library.wasm.loaded import LoadedComponent
from portico.library.wasm.settings import MB

_LISTS = {
    "tools/list": ("tools", "tools"),
    "resources/list": ("resources", "resources"),
    "resources/templates/list": ("templates", "resourceTemplates"),
    "prompts/list": ("prompts", "prompts"),
}
"""By method, the kind of a list, and the field of its result."""
_CODES = range(-(2**31), 2**31)
_SUBSCRIBING = frozenset({"resources/subscribe", "resources/unsubscribe"})
_MAX_PAGES = 100
_MAX_ITEMS = 10_000
_Item = dict[str, Any]


class ComponentProvider:
    """Answers with one component; it offers nothing until it is loaded."""

    def __init__(
        self, name: str, declared: frozenset[str], on_start: Callable[[Request], object]
    ) -> None:
        """`on_start` is called when a guest is about to be entered for a request."""
        self.name = name
        self._offer = Offer(
            declared=declared - {"completions"}, completions="completions" in declared
        )
        self._on_start = on_start
        self._watchers: list[Callable[[Change], None]] = []
        self._capabilities: Mapping[str, Capability] = {}
        self._tools: frozenset[str] = frozenset()
        self._calls: Calls | None = None
        self._loaded: LoadedComponent | None = None
        self._values: Callable[[str], SessionValues | None] = lambda _: None
        self._rounds = Rounds(os.urandom(KEY_SIZE))
        self._listing: asyncio.Task[None] | None = None
        self._is_stale = False
        self._max_output = 0
        self._output_mb = 0.0

    async def load(
        self,
        loaded: LoadedComponent,
        calls: Calls,
        values: Callable[[str], SessionValues | None] = lambda _: None,
    ) -> None:
        """Fetch all lists of a component; raises GuestFailure and GuestError. `values` returns the
        values of the session of an id."""
        self._calls, self._values = calls, values
        self._loaded = loaded
        await self._list_all()

    async def _list_all(self) -> None:
        loaded = self._loaded
        assert loaded is not None
        found = loaded.found.capabilities
        self._capabilities = {method: one for one in found for method in one.methods}
        limits = loaded.settings.limits
        self._output_mb = limits.output_mb
        self._max_output = int(limits.output_mb * MB)
        lists: dict[str, Any] = {}
        for method, (kind, field) in _LISTS.items():
            if method in self._capabilities:
                lists[kind] = await self._listed(method, kind, field)
        shown = loaded.settings.granted.tools
        if shown and "tools" in lists:
            lists["tools"] = [one for one in lists["tools"] if _is_shown(one["name"], shown)]
        self._tools = frozenset(one["name"] for one in lists.get("tools", ()))
        offer = Offer.of(
            completions="completion/complete" in self._capabilities,
            subscriptions="resources" in lists and any(map(notifies, loaded.found.imports)),
            **lists,
        )
        self._offer = msgspec.structs.replace(offer, declared=frozenset(lists) - {"templates"})
        for watcher in self._watchers:
            for kind in ("tools", "resources", "prompts"):
                watcher(Change(kind))

    async def _listed(self, method: str, kind: str, field: str) -> list[_Item]:
        """Return all pages of a list; invalid definitions are reported and left out."""
        found: dict[str, _Item] = {}
        params: dict[str, object] = {}
        size = 0
        for _ in range(_MAX_PAGES):
            page = await self._result(method, params)
            size += len(msgspec.json.encode(page))
            self._check_size(size)
            for item in _items(page, field):
                key = item.get(KEYS[kind]) if isinstance(item, dict) else None
                if not isinstance(key, str) or not key:
                    report(f"{self.name}: left out of {method}: an item without {KEYS[kind]!r}")
                elif key in found:
                    report(f"{self.name}: left out of {method}: a second {key[:80]!r}")
                elif kind == "tools" and not isinstance(item.get("inputSchema"), dict):
                    report(f"{self.name}: left out of {method}: {key[:80]!r}, without inputSchema")
                else:
                    found[key] = item
            cursor = None if page is None else page.get("nextCursor")
            if not isinstance(cursor, str) or len(found) >= _MAX_ITEMS:
                break
            params = {"cursor": cursor}
        return list(found.values())[:_MAX_ITEMS]

    async def _result(
        self,
        method: str,
        params: Mapping[str, object],
        on_start: Callable[[], object] = lambda: None,
        client: ProvidedClient | None = None,
        session: str = "",
    ) -> dict[str, Any] | None:
        assert self._calls is not None
        capability = self._capabilities[method]
        result = await self._calls.answer(capability, method, params, on_start, client, session)
        return None if result is None else dict(result)

    def offer(self) -> Offer:
        """Return all that the component offers."""
        return self._offer

    def watch(self, changed: Callable[[Change], None]) -> None:
        """Call a function when the component is loaded."""
        self._watchers.append(changed)

    def provide(self, request: Request, context: Context) -> Answer | None:
        """Answer a request for something of the component."""
        if request.method in _SUBSCRIBING and self._has(request.uri):
            return Response(id=request.id, result=EMPTY_RESULT)
        if request.method not in self._capabilities:
            return None
        if request.method == "tools/call" and request.name not in self._tools:
            return None
        return self._rounded(request, context)

    def _has(self, uri: str) -> bool:
        """True for a resource that it offers, alone or by a template."""
        if uri in self._offer.listed("resources").keys:
            return True
        patterns = (uri_pattern(text) for text in self._offer.listed("templates").keys)
        return any(one is not None and one.matches(canonical(uri)) for one in patterns)

    async def _rounded(self, request: Request, context: Context) -> Response:
        """Run one round: to the end, or to the first question without an answer."""
        bound, asker = await self._rounds.begin(request, context)
        bound.bind_links(asker, request)
        try:
            return await self._answer(request, bound)
        except Suspended as suspended:
            result = await self._rounds.suspend(request, bound, asker, suspended)
            return Response(id=request.id, result=msgspec.json.encode(result))
        finally:
            bound.release()

    async def _answer(self, request: Request, context: Context) -> Response:
        session = session_id_in(request)
        client = ProvidedClient(context, self._values(session), self._on_change)
        try:
            started = partial(self._on_start, request)
            params = request.decode()
            result = await self._result(request.method, params, started, client, session)
            if result is None:
                return terminus(request)
            return self._encoded(request, context, result)
        except GuestError as error:
            return self._failed(request, context, error)
        except GuestFailure as error:
            return self._refused(request, context, error)

    def _failed(self, request: Request, context: Context, error: GuestError) -> Response:
        """Raise the guest's own error, unless it is too large."""
        size = len(error.message.encode()) + len(msgspec.json.encode(error.data))
        if size > self._max_output:
            return self._refused(request, context, GuestFailure.too_large(size, self._output_mb))
        is_own = error.code in _CODES and error.code != URL_REQUIRED  # elicit needs a grant
        code = error.code if is_own else INTERNAL_ERROR
        raise McpError(error.message, code, error.data)

    def _refused(self, request: Request, context: Context, error: GuestFailure) -> Response:
        """Return the failure of a tool; raises McpError for anything else."""
        why = f"{self.name} {error}"
        if request.method != "tools/call":
            raise McpError(why, INTERNAL_ERROR, {"kind": "wasm", "server": self.name})
        return self._encoded(request, context, error_result(why))

    def _on_change(self, change: Change) -> None:
        """Publish that a resource has changed, or list everything again."""
        if change.uri:
            for watcher in self._watchers:
                watcher(change)
            return
        self._is_stale = True  # also while the lists are read: a part of them may be known already
        if self._listing is None:
            self._listing = asyncio.ensure_future(self._list_again())

    async def _list_again(self) -> None:
        try:
            while self._is_stale:
                self._is_stale = False
                await self._list_all()
        except (GuestFailure, GuestError) as error:
            report(f"{self.name}: its lists stay as they were: {error}")
        finally:
            self._listing = None

    def _encoded(self, request: Request, context: Context, result: dict[str, Any]) -> Response:
        if not isinstance(result.get("_meta", {}), dict):
            raise GuestError("its result has a _meta that is not an object")
        if result.get("resultType", "complete") != "complete":
            raise GuestFailure.not_final(str(result["resultType"]))
        if request.version.modern:
            result = identified(result, context.server_info)
            if request.method == "resources/read":
                result = {"ttlMs": 0, "cacheScope": "private", **result}
        data = msgspec.json.encode(result)
        self._check_size(len(data))
        return Response(id=request.id, result=data)

    def _check_size(self, size: int) -> None:
        if size > self._max_output:
            raise GuestFailure.too_large(size, self._output_mb)


def _items(page: Mapping[str, Any] | None, field: str) -> list[Any]:
    items = None if page is None else page.get(field)
    return items if isinstance(items, list) else []


def _is_shown(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
