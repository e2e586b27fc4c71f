"""The search index of tools, with the weights of their fields: built once, stored and queried."""

import re
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping
from heapq import nsmallest
from typing import Annotated, Any, NamedTuple

import msgspec

from portico.gateway.search.postings import Field, Postings, Stored
from portico.gateway.search.ranking import Tables, rank, weigh
from portico.gateway.search.tokens import parts, terms

FORMAT = 3
"""The format of the stored bytes; a change of terms or weights also needs a new one."""

# A name is written to be found, a parameter to be filled in; descriptions are between.
NAME, TITLE, DESCRIPTION, SERVER, PARAMETERS = 3.0, 3.0, 1.0, 1.0, 0.5
SERVER_NAME, SERVER_TEXT = 5.0, 1.0
"""The weights of a server's name, and of the names and descriptions of its tools."""

_EXACT = 1_000.0
"""The lead of an exact name, which vectors cannot outweigh."""
_SIGNS = re.compile(r"[\W_]+")


class Hit(NamedTuple):
    """A tool that a search found; scores compare within one search only."""

    name: str
    score: float
    server: str


class _File(msgspec.Struct, frozen=True, array_like=True):
    format: int
    names: list[str]
    servers: list[str]
    server_of: list[Annotated[int, msgspec.Meta(ge=0)]]
    tables: tuple[Stored, Stored, Stored, Stored]


class ToolIndex:
    """An immutable index of the tools of one catalog."""

    def __init__(self, names: list[str], servers: list[str], tables: Tables) -> None:
        self._names = names
        self._servers = servers
        self._tables = tables
        self._places: defaultdict[str, list[int]] = defaultdict(list)
        for place, name in enumerate(names):
            plain = _plain(name)
            self._places[plain].append(place)
            if server := _plain(servers[tables.server_of[place]]):
                self._places[server + plain].append(place)

    def __len__(self) -> int:
        return len(self._names)

    @classmethod
    def build(cls, tools: Iterable[Mapping[str, Any]]) -> "ToolIndex":
        """Index definitions as in `tools/list`, each with its `server`; of twins, the first."""
        kept = {(_text(tool, "server"), _text(tool, "name")): tool for tool in reversed([*tools])}
        ordered = [*reversed(kept.items())]
        numbers: dict[str, int] = {}
        server_of = [numbers.setdefault(server, len(numbers)) for (server, _), _ in ordered]
        documents = [_document(tool) for _, tool in ordered]
        together: list[list[str]] = [[] for _ in numbers]
        for server, document in zip(server_of, documents, strict=True):
            for _, words in document[:3]:
                together[server] += words
        server_names = [terms(server) for server in numbers]
        pairs = zip(server_names, together, strict=True)
        tables = Tables(
            Postings.relevance(documents),
            Postings.shares([parts(name) for (_, name), _ in ordered]),
            Postings.relevance([((SERVER_NAME, own), (SERVER_TEXT, text)) for own, text in pairs]),
            Postings.shares([parts(server) for server in numbers]),
            server_of,
        )
        return cls([name for (_, name), _ in ordered], [*numbers], tables)

    def search(
        self,
        query: str,
        limit: int = 5,
        server: str | None = None,
        servers: Container[str] | None = None,
    ) -> list[Hit]:
        """Return the best tools for a name, words or a task, of all, one or some servers."""
        return self.best(query, rank(self._tables, query), limit, server, servers)

    def words(self, query: str) -> dict[int, float]:
        """Return the lexical score of each tool by place, before clauses take turns."""
        return weigh(self._tables, query)[0]

    def best(
        self,
        query: str,
        scores: dict[int, float],
        limit: int,
        server: str | None = None,
        servers: Container[str] | None = None,
    ) -> list[Hit]:
        """Return the best of these places, after tools whose name equals the query."""
        self._lift_exact(query, scores)
        found: Iterable[int] = scores
        if server is not None:
            found = [place for place in found if self._server(place) == server]
        if servers is not None:
            found = [place for place in found if self._server(place) in servers]
        best = nsmallest(max(limit, 0), found, key=lambda place: (-scores[place], place))
        return [Hit(self._names[at], scores[at], self._server(at)) for at in best]

    def places(self) -> Iterator[tuple[str, str]]:
        """Yield the server and name of each tool, by place."""
        return ((self._server(at), name) for at, name in enumerate(self._names))

    def to_bytes(self) -> bytes:
        """Return the index as bytes."""
        *tables, server_of = self._tables
        stored = [table.stored() for table in tables]
        return msgspec.msgpack.encode((FORMAT, self._names, self._servers, server_of, stored))

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> "ToolIndex | None":
        """Decode an index; None if the bytes are damaged or of another format."""
        try:
            file = msgspec.msgpack.decode(data, type=_File)
            if file.format != FORMAT or len(file.names) != len(file.server_of):
                return None
            tools, servers = len(file.names), len(file.servers)
            sizes = (tools, tools, servers, servers)
            tool, name, server, server_name = map(Postings.restore, file.tables, sizes)
            tables = Tables(tool, name, server, server_name, file.server_of)
            return cls(file.names, file.servers, tables)
        except (msgspec.DecodeError, ValueError, IndexError):
            return None

    def _server(self, place: int) -> str:
        return self._servers[self._tables.server_of[place]]

    def _lift_exact(self, query: str, scores: dict[int, float]) -> None:
        """Put the tools of this very name first, then those spelled alike (getUser, get_user)."""
        alike = self._places.get(_plain(query))
        if alike is None:
            return
        step = max(scores.values(), default=0.0) + _EXACT
        for place in alike:
            steps = 2 if self._names[place] == query.strip() else 1
            scores[place] = scores.get(place, 0.0) + steps * step


def _plain(name: str) -> str:
    return _SIGNS.sub("", name).casefold() or name.strip()


def _text(tool: Mapping[str, Any], key: str) -> str:
    """Return a text of a definition; empty if a server sent another type."""
    value = tool.get(key)
    return value if isinstance(value, str) else ""


def _document(tool: Mapping[str, Any]) -> list[Field]:
    names, descriptions = _parameters(tool)
    return [
        (NAME, terms(_text(tool, "name"))),
        (TITLE, terms(_text(tool, "title"))),
        (DESCRIPTION, terms(_text(tool, "description"))),
        (SERVER, terms(_text(tool, "server"))),
        (PARAMETERS, terms(names)),
        (PARAMETERS, terms(descriptions)),
    ]


def _parameters(tool: Mapping[str, Any]) -> tuple[str, str]:
    schema = tool.get("inputSchema")
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(properties, Mapping):
        return "", ""
    schemas = [value for value in properties.values() if isinstance(value, Mapping)]
    described = [_text(schema, "description") for schema in schemas]
    return " ".join(map(str, properties)), " ".join(described)
