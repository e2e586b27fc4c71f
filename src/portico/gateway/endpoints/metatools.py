"""The provider of the meta-tools; `rewrite.py` turns `execute_tool` into a plain call."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec import Struct

from portico.core.catalog.exposed_names import SEPARATOR
from portico.core.catalog.merge import ADDED
from portico.core.catalog.rendering import brief, brief_status, brief_text, full, full_text
from portico.core.catalog.sanitize import sanitize_json
from portico.core.definitions.typed_arguments import typed_arguments
from portico.core.model.context import Context
from portico.core.model.errors import INVALID_PARAMS, PorticoError
from portico.core.model.message import Request, Response
from portico.core.model.offer import Offer
from portico.core.model.types import Answer, Change, Handler
from portico.core.model.version import Version
from portico.core.model.wording import counted, did_you_mean
from portico.core.protocol.codec import encode, error_response, mcp_error_response
from portico.core.protocol.result_fields import noted_result
from portico.core.state.per_client import PerClient
from portico.gateway.endpoints import metatool_definitions
from portico.gateway.endpoints.bare_names import with_bare_names
from portico.gateway.endpoints.exposure import Exposure, MemberRegistry
from portico.gateway.endpoints.failure_results import failure_response, result_response
from portico.gateway.endpoints.rewrite import InvalidCall, not_read_only, unwrapping
from portico.library.chain.fold import terminus
from portico.upstream.connections.installs import INSTALLING, WAITING

if TYPE_CHECKING:
    from portico.gateway.search.index import Hit

_MAX_QUERIES = 10
_MAX_NAMES = 20
_MAX_SUGGESTIONS = 3
_MAX_HITS = 1_000
_MAX_SERVERS = 50
"""The limit on names in one answer, which a model reads in full."""
FIRST_SEARCH_TIMEOUT_S = 5.0
"""The time that a search waits for servers that are being listed for the first time."""


class SearchableRegistry(MemberRegistry, Protocol):
    """A registry whose tools can be searched and refreshed."""

    async def search(
        self, query: str, limit: int, server: str | None, servers: frozenset[str]
    ) -> "Sequence[Hit]":
        """Return the best tools for a query."""
        ...

    def indexed_count(self) -> int | None:
        """Return the number of indexed tools; None if all are indexed."""
        ...

    def similar_names(self, name: str, limit: int) -> list[str]:
        """Return the names of tools that are similar to a name."""
        ...

    async def refresh(self, servers: Iterable[str]) -> None:
        """Fetch the catalogs of these servers."""
        ...

    def status(self, servers: Iterable[str]) -> dict[str, Any]:
        """Return the state of the gateway and of these servers."""
        ...

    def pending(self, servers: Iterable[str]) -> list[str]:
        """Return those servers whose tools were never listed."""
        ...


class _Search(Struct, forbid_unknown_fields=True):
    query: str = ""
    queries: list[str] = []
    limit: int = 0
    server: str | None = None
    detail: str = "brief"


class _Describe(Struct, forbid_unknown_fields=True):
    name: str = ""
    names: list[str] = []


class _Refresh(Struct, forbid_unknown_fields=True):
    server: str | None = None


class _Status(Struct, forbid_unknown_fields=True):
    server: str | None = None
    detail: str = "brief"


class _Call(Struct):
    arguments: msgspec.Raw = msgspec.Raw(b"")


_fields = msgspec.json.Decoder(dict[str, Any]).decode


Result = dict[str, Any]
_Tool = Callable[[bytes, Context], Awaitable[Result]]


class MetaTools:
    """The meta-tools of one endpoint: a provider, and the link that unwraps `execute_tool`."""

    name = "meta-tools"

    def __init__(self, registry: SearchableRegistry, exposure: Exposure) -> None:
        self._registry = registry
        self._exposure = exposure
        self._servers = exposure.servers
        self._slow: set[str] = set()
        """Servers for which a search has waited in vain."""
        self._read_only: PerClient[set[str]] = PerClient(set)
        """The tools that each client was last shown as read-only."""
        self._tools: dict[str, _Tool] = {
            metatool_definitions.SEARCH: self._search,
            metatool_definitions.DESCRIBE: self._describe,
            metatool_definitions.REFRESH: self._refresh,
            metatool_definitions.STATUS: self._status,
        }

    def offer(self) -> Offer:
        """Return an empty offer: the exposure lists the meta-tools with their descriptions."""
        return Offer()

    def watch(self, changed: Callable[[Change], None]) -> None:
        """Do nothing: the exposure publishes changes."""

    def provide(self, request: Request, context: Context) -> Answer | None:
        """Answer a meta-tool other than `execute_tool`."""
        tool = self._tools.get(request.name) if request.method == "tools/call" else None
        return None if tool is None else self._answer(tool, request, context)

    async def _answer(self, tool: _Tool, request: Request, context: Context) -> Response:
        call = msgspec.json.decode(request.params or b"{}", type=_Call)
        given = bytes(call.arguments)
        given = given if given not in (b"", b"null") else b"{}"
        try:
            result = await tool(given, context)
        except InvalidCall as invalid:
            result = invalid.result()
        if request.version < Version.V2025_06_18:
            result.pop("structuredContent", None)
        return result_response(request, context, result)

    def unwrapping(self, next: Handler) -> Handler:
        """Wrap the next handler so that it sees `execute_tool` as a call of the named tool."""

        def answer_hidden(request: Request, context: Context) -> Answer | None:
            if self._exposure.merged.tool(request.name) is not None:
                return None
            # A hidden tool must get the same answer as one that does not exist.
            return self._execute_when_known(next, request, context)

        check = answer_hidden if self._exposure.is_filtered else None
        reserved = metatool_definitions.RESERVED
        other = with_bare_names(lambda: self._exposure.merged, reserved, next)
        return unwrapping(next, other, self._invalid, self._refuse_read, check)

    def _refuse_read(self, request: Request, context: Context) -> Response | None:
        """Refuse `execute_read_tool` unless the tool is read-only, now and as it was last shown to
        this client."""
        place = self._exposure.merged.tool(request.name)
        if place is None:
            return self.unknown_tool(request, context)
        if not self._exposure.is_read_only(place):
            return self._invalid(request, context, not_read_only(request.name))
        if request.name in self._read_only.of(context):
            return None
        why = f"{request.name} was not shown to you as read-only; call describe_tool first"
        return self._invalid(request, context, InvalidCall(why))

    def _shown_as(
        self, shape: Callable[..., Result], place: tuple[Any, str, str], context: Context
    ) -> Result:
        """Return a tool as a client sees it, and remember whether it saw a read-only one."""
        namespaced, tool, name = place
        shown = self._read_only.of(context)
        if self._exposure.is_read_only((namespaced, tool)):
            shown.add(name)
            return shape(*place, metatool_definitions.EXECUTE_READ)
        shown.discard(name)
        return shape(*place, metatool_definitions.EXECUTE)

    async def _execute_when_known(
        self, next: Handler, request: Request, context: Context
    ) -> Response:
        """Call a tool once its server's tools are known."""
        if await self.wait_for_tool(request.name):
            return await next(request, context)
        return self.unknown_tool(request, context)

    def unknown_tool(self, request: Request, context: Context) -> Response:
        """Return the response to a call of an unknown tool."""
        server = request.name.partition(SEPARATOR)[0]
        member = self._registry.members.get(server) if server in self._servers() else None
        if member is not None and member.is_pending and member.login_error is not None:
            context.target = (server, "")
            if request.asked:
                return failure_response(request, context, member.login_error)
            return mcp_error_response(request.id, member.login_error)
        if request.asked:
            return self._invalid(request, context, self._unknown_tool(request.name))
        context.target = ("", "")
        reason = self.unknown_reason(request.name)
        if not reason:
            return terminus(request)
        words = f"unknown tool: {request.name[:200]}; {reason}"
        return error_response(request.id, INVALID_PARAMS, words)

    def _invalid(self, request: Request, context: Context, why: InvalidCall) -> Response:
        context.server_info = self._exposure.now().identity
        context.target = ("", request.asked or request.name)
        return result_response(request, context, why.result())

    async def wait_for_tool(self, name: str) -> bool:
        """Return True if a tool has this name, after waiting for a server that is not known yet."""
        server = name.partition(SEPARATOR)[0]
        if self._exposure.merged.tool(name) is None and server in self._servers():
            await self._registry.wait_for_catalog(server)
        return self._exposure.merged.tool(name) is not None

    def _unknown_tool(self, name: str) -> InvalidCall:
        """Explain that no tool has this name."""
        reason = self.unknown_reason(name)
        if reason:
            return InvalidCall(reason)
        server = name.partition(SEPARATOR)[0]
        if self._is_disabled(server):
            return self._no_server(server)
        meant = self._did_you_mean(name)
        hint = f"{meant}{meant and ' '}{self._all_servers()}"
        return InvalidCall(f"there is no tool {name[:200]!r}; {hint}")

    def unknown_reason(self, name: str) -> str:
        """Return why the tools of the server in this name are not known; empty if they are, or if
        there is no such server."""
        server = name.partition(SEPARATOR)[0]
        if server not in self._servers() or not self._registry.pending([server]):
            return ""
        state = self._registry.status([server])["servers"][0]
        why = state["error"] or "they are being fetched; retry in a moment"
        if state["state"] in (INSTALLING, WAITING):
            why = f"it is {state['state']}, which may take minutes; retry later"
        return f"the tools of {server} are not known yet: {why}"

    async def _search(self, raw: bytes, context: Context) -> Result:
        given = _arguments(raw, _Search, metatool_definitions.SEARCH)
        queries = [*([given.query] if given.query else []), *given.queries]
        if not any(query.strip() for query in queries):
            raise InvalidCall("search_tools: `query` is missing; describe the need in plain words")
        if len(queries) > _MAX_QUERIES:
            raise InvalidCall(f"search_tools: at most {_MAX_QUERIES} queries at once")
        is_full = _is_full(given.detail, metatool_definitions.SEARCH)
        servers = self._servers()
        await self._wait_for_first_lists(self._chosen(given.server))
        limit = min(
            max(given.limit or self._registry.config.search.default_limit, 1),
            metatool_definitions.MAX_LIMIT,
        )
        scope = frozenset([*servers, ADDED])
        wanted = _MAX_HITS if self._exposure.is_filtered else limit  # hidden hits are dropped
        try:
            hits = await asyncio.gather(
                *(self._registry.search(query, wanted, given.server, scope) for query in queries)
            )
        except PorticoError as error:
            raise InvalidCall(f"search_tools: {error}") from None
        shape, words = (full, full_text) if is_full else (brief, brief_text)
        results: list[Result] = []
        texts, notes = [], self._unsearched()
        for query, found in zip(queries, hits, strict=True):
            places = [place for hit in found if (place := self._place(hit)) is not None]
            tools = [self._shown_as(shape, place, context) for place in places[:limit]]
            results.append({"query": query, "tools": tools})
            text = "\n\n".join(map(words, tools))
            if not tools:
                text = results[-1]["note"] = self._no_hits(query)
            texts.append(f"# {query}\n{text}" if len(queries) > 1 else text)
        if not all(result["tools"] for result in results):
            notes.append(self._all_servers())
        structured: Result = {"results": results}
        indexed = self._registry.indexed_count()
        if indexed is not None:
            there = self._exposure.merged.tool_count
            structured["indexing"] = {"indexed": min(indexed, there), "tools": there}
            notes.append(_indexing(min(indexed, there), there))
        return noted_result(texts, structured, notes)

    async def _wait_for_first_lists(self, servers: Iterable[str]) -> None:
        """Wait briefly for servers that are being listed for the first time, and for each once."""
        members = [self._registry.members[name] for name in servers if name not in self._slow]
        coming = {
            member.refreshing: member.name
            for member in members
            if member.refreshing is not None and member.is_pending and not member.problem
        }
        if coming:
            _, slow = await asyncio.wait(coming, timeout=FIRST_SEARCH_TIMEOUT_S)
            self._slow.update(coming[refreshing] for refreshing in slow)

    async def _describe(self, raw: bytes, context: Context) -> Result:
        given = _arguments(raw, _Describe, metatool_definitions.DESCRIBE)
        names = [*([given.name] if given.name else []), *given.names]
        if not names:
            raise InvalidCall("describe_tool: `name` is missing")
        if len(names) > _MAX_NAMES:
            raise InvalidCall(f"describe_tool: at most {_MAX_NAMES} names at once")
        await asyncio.gather(*map(self.wait_for_tool, names))
        merged = self._exposure.merged
        tools, missing = [], []
        for name in names:
            place = merged.tool(name)
            if place is None:
                missing.append(str(self._unknown_tool(name)))
            else:
                shown = (merged.shown(place[0]), place[1], name)
                tools.append(self._shown_as(full, shown, context))
        if not tools:
            raise InvalidCall("; ".join(missing))
        return noted_result([*map(full_text, tools)], {"tools": tools}, missing)

    async def _refresh(self, raw: bytes, context: Context) -> Result:
        given = _arguments(raw, _Refresh, metatool_definitions.REFRESH)
        chosen = self._chosen(given.server)
        await self._registry.refresh(chosen)
        return self._status_result(chosen, is_full=False)

    async def _status(self, raw: bytes, context: Context) -> Result:
        given = _arguments(raw, _Status, metatool_definitions.STATUS)
        is_full = _is_full(given.detail, metatool_definitions.STATUS)
        return self._status_result(self._chosen(given.server), is_full=is_full)

    def _chosen(self, server: str | None) -> Sequence[str]:
        """Return the named server, or all of this endpoint; raises InvalidCall."""
        servers = self._servers()
        if server is not None and server not in servers:
            raise self._no_server(server)
        return servers if server is None else [server]

    def _status_result(self, servers: Iterable[str], *, is_full: bool) -> Result:
        status = self._registry.status(servers)
        if self._exposure.is_filtered:
            self._exposure.redact_status(status)
        if is_full:
            return noted_result([sanitize_json(encode(status).decode())], status)
        status = brief_status(status)
        lines: list[str] = status["servers"]
        notes = [] if lines else ["no servers are configured"]
        return noted_result(["\n".join(lines)] if lines else [], status, notes)

    def _place(self, hit: "Hit") -> tuple[Any, str, str] | None:
        """Return the offer with a hit's tool, and both its names; None if it was removed."""
        merged = self._exposure.merged
        namespaced = merged.namespaced_offers.get(hit.server)
        name = namespaced.tools.get(hit.name) if namespaced is not None else None
        if namespaced is None or name is None:
            return None
        return merged.shown(namespaced), hit.name, name

    def _is_disabled(self, server: str) -> bool:
        entry = self._registry.config.entries.get(server)
        return entry is not None and not entry.enabled

    def _no_server(self, server: str) -> InvalidCall:
        if self._is_disabled(server):
            return InvalidCall(f"{server} is disabled in the config; {self._all_servers()}")
        return InvalidCall(f"there is no server {server[:100]!r}; {self._all_servers()}")

    def _no_hits(self, query: str) -> str:
        meant = self._did_you_mean(query)
        return f"nothing found for {query[:200]!r}{meant and '; '}{meant}"

    def _did_you_mean(self, name: str) -> str:
        found = self._registry.similar_names(name, _MAX_SUGGESTIONS * 3)
        near = [one for one in found if self._exposure.merged.tool(one) is not None]
        return did_you_mean(near[:_MAX_SUGGESTIONS])

    def _all_servers(self) -> str:
        namespaced_offers, names = self._exposure.merged.namespaced_offers, []
        for name in self._servers():
            tools = (
                namespaced_offers[name].listed("tools").keys if name in namespaced_offers else None
            )
            names.append(name if tools is None else f"{name} ({counted(len(tools), 'tool')})")
        if not names:
            return "there are no servers yet"
        more = "; gateway_status lists all" if len(names) > _MAX_SERVERS else ""
        return f"the servers are {_join_names(names)}{more}"

    def _unsearched(self) -> list[str]:
        """Name the servers whose tools could not be searched, and whether to wait for them."""
        pending = self._registry.pending(self._servers())
        if not pending:
            return []
        states = self._registry.status(pending)["servers"]
        installing = [one["server"] for one in states if one["state"] in (INSTALLING, WAITING)]
        failed = [one["server"] for one in states if one["error"]]
        failed = [name for name in failed if name not in installing]
        coming = [name for name in pending if name not in (*failed, *installing)]
        notes = []
        if coming:
            notes.append(f"still loading: the tools of {_join_names(coming)}; search again soon")
        if installing:
            names = _join_names(installing)
            notes.append(f"installing, which may take minutes: the tools of {names}")
        if failed:
            notes.append(f"unavailable: the tools of {_join_names(failed)}; see gateway_status")
        return notes


def _indexing(indexed: int, tools: int) -> str:
    there = f"{indexed} of {tools} tools are" if indexed < tools else "not all changes are"
    return f"{there} indexed so far; search again in a moment for the rest"


def _is_full(detail: str, tool: str) -> bool:
    if detail not in ("brief", "full"):
        raise InvalidCall(f"{tool}: `detail` must be brief or full")
    return detail == "full"


def _arguments(raw: bytes, type: type[Any], tool: str) -> Any:
    try:
        return typed_arguments(_fields(raw), type)
    except ValueError as error:
        raise InvalidCall(f"{tool}: {error}") from None


def _join_names(names: list[str]) -> str:
    """Join names, up to the limit for one answer."""
    more = len(names) - _MAX_SERVERS
    return ", ".join([*names[:_MAX_SERVERS], *([f"{more} more"] if more > 0 else [])])
