"""Which server told a client of which resource: what a result mentions can be read afterwards."""

import re
from collections import OrderedDict
from collections.abc import Iterator
from weakref import WeakKeyDictionary

import msgspec

from portico.catalog.resource_routing import ResourceRouting, prefixed_uri
from portico.catalog.uris import canonical
from portico.model.context import Context
from portico.model.message import Response
from portico.model.session import Session

_MAX_URIS = 1000
"""URIs looked at in one result, the first, and kept for each client and server, the newest."""
_MAX_MARKS = 10 * _MAX_URIS
"""Marks looked at in one result: a text may be full of them."""
_MAX_URI = 8 * 1024
"""A longer URI is passed on as it is."""
_MAX_PRINCIPALS = 100
URI_KEY_ENDING = b'ri"'
"""How each key ends in JSON that has a URI: a result without it mentions nothing."""
_KEYS = (b'"uri"', b'"resourceUri"', b'"ui/resourceUri"')
_VALUE = re.compile(rb'\s*:\s*("(?:[^"\\]|\\.)*+")', re.DOTALL)

_text = msgspec.json.Decoder(str).decode


class _ClientOrigins:
    """The URIs that one client was told of, and by whom; the first server to mention one has it."""

    def __init__(self) -> None:
        self._owners: dict[str, str] = {}
        self._by_server: dict[str, OrderedDict[str, None]] = {}

    def owner(self, uri: str) -> str | None:
        return self._owners.get(canonical(uri))

    def record(self, uri: str, server: str) -> None:
        """Keep it for this server; however many it mentions, those of others stay."""
        same = canonical(uri)
        self._owners[same] = server
        mine = self._by_server.setdefault(server, OrderedDict())
        mine[same] = None
        mine.move_to_end(same)
        if len(mine) > _MAX_URIS:
            oldest, _ = mine.popitem(last=False)
            if self._owners.get(oldest) == server:
                del self._owners[oldest]


class ResourceOrigins:
    """By client, the URIs that results mentioned, and whose they are."""

    def __init__(self) -> None:
        self._sessions: WeakKeyDictionary[Session, _ClientOrigins] = WeakKeyDictionary()
        self._principals: OrderedDict[str, _ClientOrigins] = OrderedDict()

    def owner(self, uri: str, context: Context) -> str | None:
        """Who mentioned it to this client."""
        return self._origins_of(context).owner(uri)

    def rewrite_uris(
        self, response: Response, server: str, owners: ResourceRouting, context: Context
    ) -> Response:
        """The response as a client gets it: a resource that another server owns as well is shown
        under its own server's name."""
        known = self._origins_of(context)
        result = response.result
        parts: list[bytes] = []
        done = 0
        for begin, end, uri in _uris(result):
            shown = owners.exposed_uri(server, uri)
            if shown == uri and owners.owner(uri) is None:
                shown = _record(uri, server, owners, known)
            if shown != uri:
                parts += (result[done:begin], msgspec.json.encode(shown))
                done = end
        if not parts:
            return response
        return Response(id=response.id, result=b"".join((*parts, result[done:])))

    def _origins_of(self, context: Context) -> _ClientOrigins:
        if context.session is not None:
            found = self._sessions.get(context.session)
            if found is None:
                found = self._sessions[context.session] = _ClientOrigins()
            return found
        found = self._principals.setdefault(context.principal, _ClientOrigins())
        if len(self._principals) > _MAX_PRINCIPALS:
            self._principals.popitem(last=False)
        return found


def _uris(result: bytes) -> Iterator[tuple[int, int, str]]:
    """The first URIs of a result, and where each of them stands.

    A result may be large, and to make objects of it takes far longer than to pass it on. Quotes
    within texts are escaped, so a key in its quotes followed by a colon is a key.
    """
    at = found = 0
    for _ in range(_MAX_MARKS):
        at = result.find(URI_KEY_ENDING, at)
        if at < 0 or found == _MAX_URIS:
            return
        at += len(URI_KEY_ENDING)
        value = _VALUE.match(result, at)
        if value is None or not _is_key(result, at):
            continue
        begin, end = value.span(1)
        if end - begin <= _MAX_URI:
            found += 1
            yield begin, end, _text(value[1])
        at = end


def _is_key(result: bytes, end: int) -> bool:
    """True if one of our keys ends here."""
    key = next((key for key in _KEYS if result.endswith(key, 0, end)), None)
    return key is not None and result[end - len(key) - 1 : end - len(key)] != b"\\"


def _record(uri: str, server: str, owners: ResourceRouting, known: _ClientOrigins) -> str:
    """Note a URI that nobody owns; one that another server mentioned before stays that server's."""
    before = known.owner(uri)
    if before is not None and before != server and before in owners.servers:
        return prefixed_uri(server, uri)
    known.record(uri, server)
    return uri
