"""Answers the meta-tools: what is behind the gateway, and which of it is wanted."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec import Struct

from portico.catalog.exposed_names import SEPARATOR
from portico.chain.fold import terminus
from portico.config.schema import Config
from portico.gateway import metatool_definitions
from portico.gateway.exposure import Exposure
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
"""That are named at once: a model reads it all."""


class SearchableRegistry(Protocol):
    """What the desk knows of the gateway."""

    config: Config

    async def search(
        self, query: str, limit: int, server: str | None, servers: frozenset[str]
    ) -> "Sequence[Hit]":
        """The best tools for a query."""
        ...

    def indexed_count(self) -> int | None:
        """How many tools are indexed; None if all are."""
        ...

    def similar_names(self, name: str, limit: int) -> list[str]:
        """Exposed names of tools that one might have meant."""
        ...

    async def refresh(self, servers: Iterable[str]) -> None:
        """Ask these servers for all they offer."""
        ...

    async def wait_for_catalog(self, server: str) -> None:
        """Wait, but not for ever, until a server says what it offers."""
        ...

    def status(self, servers: Iterable[str]) -> dict[str, Any]:
        """How the gateway and these servers fare."""
        ...

    def pending(self, servers: Iterable[str]) -> list[str]:
        """Those of them that never said what they offer."""
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
    """The meta-tools of one endpoint: a provider, and the link that makes `execute_tool` a call of
    the tool that it names."""

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
        """The front lists them, in words about what is behind it."""
        return Offer()

    def watch(self, changed: Callable[[Change], None]) -> None:
        """The front tells of their changes."""

    def provide(self, request: Request, context: Context) -> Answer | None:
        """Answer a meta-tool, `execute_tool` apart."""
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
        """A link before all others, which see a call of the tool that is named."""

        def answer_hidden(request: Request, context: Context) -> Answer | None:
            if self._exposure.merged.tool(request.name) is not None:
                return None
            # Links must not answer otherwise for what they hide than for what is not there.
            return self._execute_when_known(next, request, context)

        check = answer_hidden if self._exposure.is_filtered else None
        return unwrapping(next, self._invalid, check)

    async def _execute_when_known(
        self, next: Handler, request: Request, context: Context
    ) -> Response:
        """Call a tool of a server that has not said yet which tools it has, once it has."""
        if await self.wait_for_tool(request.name):
            return await next(request, context)
        return self.unknown_tool(request, context)

    def unknown_tool(self, request: Request, context: Context) -> Response:
        """The answer to a call of an unknown tool."""
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
        """True if a tool has this name, perhaps only now: a server that has not said yet which
        tools it has is waited for."""
        server = name.partition(SEPARATOR)[0]
        if self._exposure.merged.tool(name) is None and server in self._servers():
            await self._registry.wait_for_catalog(server)
        return self._exposure.merged.tool(name) is not None

    def _unknown_tool(self, name: str) -> InvalidCall:
        """What to say of a name that no tool has."""
        reason = self.unknown_reason(name)
        if reason:
            return InvalidCall(reason)
        server = name.partition(SEPARATOR)[0]
        if self._is_disabled(server):
            return self._no_server(server)
        return InvalidCall(f"there is no tool {name[:200]!r}{self._suggestions(name)}")

    def unknown_reason(self, name: str) -> str:
        """Why the server that this name begins with has not said which tools it has; empty if it
        has, or there is none."""
        server = name.partition(SEPARATOR)[0]
        if server not in self._servers() or not self._registry.pending([server]):
            return ""
        error = self._registry.status([server])["servers"][0]["error"]
        why = error or "it is being asked, try again in a moment"
        return f"{server} has not said yet which tools it has: {why}"

    async def _search(self, raw: bytes, context: Context) -> Result:
        given = _arguments(raw, _Search, metatool_definitions.SEARCH)
        queries = [*([given.query] if given.query else []), *given.queries]
        if not any(query.strip() for query in queries):
            raise InvalidCall("search_tools: `query` is missing: say in plain words what you need")
        if len(queries) > _MAX_QUERIES:
            raise InvalidCall(f"search_tools: at most {_MAX_QUERIES} queries at once")
        if given.detail not in ("brief", "full"):
            raise InvalidCall("search_tools: `detail` is brief or full")
        servers = self._servers()
        if given.server is not None and given.server not in servers:
            raise self._no_server(given.server)
        limit = min(
            max(given.limit or self._registry.config.search.default_limit, 1),
            metatool_definitions.MAX_LIMIT,
        )
        scope = frozenset(servers)
        wanted = _MAX_HITS if self._exposure.is_filtered else limit  # what is hidden goes out
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
            told = "\n\n".join(map(words, tools)) or self._no_hits(query)
            texts.append(f"# {query}\n{told}" if len(queries) > 1 else told)
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
                tools.append(full(*place, name))
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
        """Whose tool a hit is, and both its names; None if it has gone since."""
        namespaced = self._exposure.merged.namespaced_offers.get(hit.server)
        shown = namespaced.tools.get(hit.name) if namespaced is not None else None
        return None if namespaced is None or shown is None else (namespaced, hit.name, shown)

    def _is_disabled(self, server: str) -> bool:
        entry = self._registry.config.servers.get(server)
        return entry is not None and not entry.enabled

    def _no_server(self, server: str) -> InvalidCall:
        if self._is_disabled(server):
            return InvalidCall(f"{server} is switched off in the config; {self._all_servers()}")
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
        more = ", which gateway_status lists" if len(names) > _MAX_SERVERS else ""
        return f"the servers are {_join_names(names)}{more}"

    def _unsearched(self) -> list[str]:
        """Whose tools could not be searched, and whether to wait for them."""
        pending = self._registry.pending(self._servers())
        if not pending:
            return []
        told = self._registry.status(pending)["servers"]
        failed = [one["server"] for one in told if one["error"]]
        coming = [name for name in pending if name not in failed]
        words = [f"(still to come: the tools of {_join_names(coming)})"] if coming else []
        if failed:
            words.append(
                f"(not known: the tools of {_join_names(failed)}; gateway_status says why)"
            )
        return words


def _indexing(indexed: int, tools: int) -> str:
    there = f"{indexed} of {tools} tools are" if indexed < tools else "not all changes are"
    return f"({there} indexed so far; search again in a moment for the rest)"


def _arguments(raw: bytes, type: type[Any], tool: str) -> Any:
    try:
        # Some models write null for all that they leave out, and 5.0 or "5" for 5.
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
        tools = f"{server['tools']} of {there}, the limit of max_tools"
    age = server.get("age_s")
    told = f", {_age(age)} old" if age is not None else ""
    error = f": {server['error'].splitlines()[0]}" if server["error"] else ""
    return f"{server['server']}: {server['state']}, {tools}{told}{error}"


def _join_names(names: list[str]) -> str:
    """As many as a model may be told of."""
    more = len(names) - _MAX_SERVERS
    return ", ".join([*names[:_MAX_SERVERS], *([f"{more} more"] if more > 0 else [])])


def _age(seconds: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
