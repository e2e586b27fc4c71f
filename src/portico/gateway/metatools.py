"""The provider of the meta-tools, and the link that turns `execute_tool` into a plain call."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec import Struct

from portico.catalog.exposed_names import SEPARATOR
from portico.catalog.merge import ADDED
from portico.chain.fold import terminus
from portico.gateway import metatool_definitions
from portico.gateway.exposure import Exposure, MemberRegistry
from portico.gateway.failure_results import result_response
from portico.gateway.rendering import brief, brief_text, full, full_text
from portico.gateway.rewrite import InvalidCall, unwrapping
from portico.model.context import Context
from portico.model.errors import INVALID_PARAMS, PorticoError
from portico.model.message import Request, Response
from portico.model.offer import Offer
from portico.model.types import Answer, Change, Handler
from portico.model.version import Version
from portico.model.wording import counted, did_you_mean
from portico.protocol.codec import encode, error_response

if TYPE_CHECKING:
    from portico.search.index import Hit

_MAX_QUERIES = 10
_MAX_NAMES = 20
_MAX_SUGGESTIONS = 3
_MAX_HITS = 1_000
_MAX_SERVERS = 50
"""The limit on names in one answer, which a model reads in full."""


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
    pass


class _Call(Struct):
    arguments: msgspec.Raw = msgspec.Raw(b"")


_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


Result = dict[str, Any]
_Tool = Callable[[bytes, Context], Awaitable[Result]]


class MetaTools:
    """The meta-tools of one endpoint: a provider, and the link that unwraps `execute_tool`."""

    name = "meta-tools"

    def __init__(self, registry: SearchableRegistry, exposure: Exposure) -> None:
        self._registry = registry
        self._exposure = exposure
        self._servers = exposure.servers
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
        return unwrapping(next, self._invalid, check)

    async def _execute_when_known(
        self, next: Handler, request: Request, context: Context
    ) -> Response:
        """Call a tool once its server's tools are known."""
        if await self.wait_for_tool(request.name):
            return await next(request, context)
        return self.unknown_tool(request, context)

    def unknown_tool(self, request: Request, context: Context) -> Response:
        """Return the response to a call of an unknown tool."""
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
        context.target = ("", metatool_definitions.EXECUTE)
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
        return InvalidCall(f"there is no tool {name[:200]!r}{self._suggestions(name)}")

    def unknown_reason(self, name: str) -> str:
        """Return why the tools of the server in this name are not known; empty if they are, or if
        there is no such server."""
        server = name.partition(SEPARATOR)[0]
        if server not in self._servers() or not self._registry.pending([server]):
            return ""
        error = self._registry.status([server])["servers"][0]["error"]
        why = error or "they are being fetched; retry in a moment"
        return f"the tools of {server} are not known yet: {why}"

    async def _search(self, raw: bytes, context: Context) -> Result:
        given = _arguments(raw, _Search, metatool_definitions.SEARCH)
        queries = [*([given.query] if given.query else []), *given.queries]
        if not any(query.strip() for query in queries):
            raise InvalidCall("search_tools: `query` is missing; describe the need in plain words")
        if len(queries) > _MAX_QUERIES:
            raise InvalidCall(f"search_tools: at most {_MAX_QUERIES} queries at once")
        if given.detail not in ("brief", "full"):
            raise InvalidCall("search_tools: `detail` must be brief or full")
        servers = self._servers()
        if given.server is not None and given.server not in servers:
            raise self._no_server(given.server)
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
        shape, words = (full, full_text) if given.detail == "full" else (brief, brief_text)
        results, texts = [], []
        for query, found in zip(queries, hits, strict=True):
            places = [place for hit in found if (place := self._place(hit)) is not None]
            tools = [shape(*place) for place in places[:limit]]
            results.append({"query": query, "tools": tools})
            text = "\n\n".join(map(words, tools)) or self._no_hits(query)
            texts.append(f"# {query}\n{text}" if len(queries) > 1 else text)
        structured: Result = {"results": results}
        indexed = self._registry.indexed_count()
        if indexed is not None:
            there = self._exposure.merged.tool_count
            structured["indexing"] = {"indexed": min(indexed, there), "tools": there}
            texts.append(_indexing(min(indexed, there), there))
        return _result("\n\n".join([*texts, *self._unsearched()]), structured)

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
                tools.append(full(merged.shown(place[0]), place[1], name))
        if not tools:
            raise InvalidCall("; ".join(missing))
        return _result("\n\n".join([*map(full_text, tools), *missing]), {"tools": tools})

    async def _refresh(self, raw: bytes, context: Context) -> Result:
        given = _arguments(raw, _Refresh, metatool_definitions.REFRESH)
        servers = self._servers()
        if given.server is not None and given.server not in servers:
            raise self._no_server(given.server)
        chosen = servers if given.server is None else [given.server]
        await self._registry.refresh(chosen)
        return self._status_result(chosen)

    async def _status(self, raw: bytes, context: Context) -> Result:
        _arguments(raw, _Status, metatool_definitions.STATUS)
        return self._status_result(self._servers())

    def _status_result(self, servers: Iterable[str]) -> Result:
        status = self._registry.status(servers)
        if self._exposure.is_filtered:
            self._exposure.redact_status(status)
        lines = [_status_line(server) for server in status["servers"]]
        return _result("\n".join(lines) or "no servers are configured", status)

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
        return f"nothing found for {query[:200]!r}{self._suggestions(query)}"

    def _suggestions(self, name: str) -> str:
        found = self._registry.similar_names(name, _MAX_SUGGESTIONS * 3)
        near = [one for one in found if self._exposure.merged.tool(one) is not None]
        meant = did_you_mean(near[:_MAX_SUGGESTIONS])
        return f"; {meant} {self._all_servers()}" if meant else f"; {self._all_servers()}"

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
        failed = [state["server"] for state in states if state["error"]]
        coming = [name for name in pending if name not in failed]
        words = [f"(still loading: the tools of {_join_names(coming)})"] if coming else []
        if failed:
            words.append(f"(unavailable: the tools of {_join_names(failed)}; see gateway_status)")
        return words


def _indexing(indexed: int, tools: int) -> str:
    there = f"{indexed} of {tools} tools are" if indexed < tools else "not all changes are"
    return f"({there} indexed so far; search again in a moment for the rest)"


def _arguments(raw: bytes, type: type[Any], tool: str) -> Any:
    try:
        # Some models send null for omitted arguments, and 5.0 or "5" for 5.
        given = {key: one for key, one in _fields(raw).items() if bytes(one) != b"null"}
        return msgspec.json.decode(encode(given), type=type, strict=False)
    except msgspec.DecodeError as error:
        raise InvalidCall(f"{tool}: {error}") from None


def _result(text: str, structured: dict[str, Any]) -> Result:
    return {"content": [{"type": "text", "text": text}], "structuredContent": structured}


def _status_line(server: dict[str, Any]) -> str:
    tools = "tools not known yet" if server["pending"] else counted(server["tools"], "tool")
    left_out = server["omitted"].get("tools")
    if left_out:
        there = counted(server["tools"] + left_out, "tool")
        tools = f"{server['tools']} of {there} (limited by max_tools)"
    age = server.get("age_s")
    old = f", {_age(age)} old" if age is not None else ""
    error = f": {server['error'].splitlines()[0]}" if server["error"] else ""
    return f"{server['server']}: {server['state']}, {tools}{old}{error}"


def _join_names(names: list[str]) -> str:
    """Join names, up to the limit for one answer."""
    more = len(names) - _MAX_SERVERS
    return ", ".join([*names[:_MAX_SERVERS], *([f"{more} more"] if more > 0 else [])])


def _age(seconds: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
