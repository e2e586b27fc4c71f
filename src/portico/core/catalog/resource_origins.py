"""The origins of resources in results, so that a client can read them afterwards."""

import re
from collections import OrderedDict
from collections.abc import Iterator

import msgspec

from portico.core.catalog.resource_routing import ResourceRouting
from portico.core.catalog.uris import canonical
from portico.core.model.context import Context
from portico.core.model.message import Response
from portico.core.state.per_client import PerClient

_MAX_URIS = 1000
"""The URIs read from one result (the first) and kept for each client and server (the newest)."""
_MAX_MARKS = 10 * _MAX_URIS
"""The candidates checked in one result: a text may be full of them."""
_MAX_URI = 8 * 1024
"""Longer URIs are passed on unchanged."""
URI_KEY_ENDING = b'ri"'
"""The end of every JSON key whose value is a URI: a result without it contains none."""
_KEYS = (b'"uri"', b'"resourceUri"', b'"ui/resourceUri"')
_VALUE = re.compile(rb'\s*:\s*("(?:[^"\\]|\\.)*+")', re.DOTALL)

_text = msgspec.json.Decoder(str).decode


class _ClientOrigins:
    """The URIs that one client received, by server; the first server to send a URI owns it."""

    def __init__(self) -> None:
        self._owners: dict[str, str] = {}
        self._by_server: dict[str, OrderedDict[str, None]] = {}

    def owner(self, uri: str) -> str | None:
        return self._owners.get(canonical(uri))

    def record(self, uri: str, server: str) -> None:
        """Keep a URI for this server; the limit applies to each server separately."""
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
    """The URIs that results contained, by client, and their owners."""

    def __init__(self) -> None:
        self._clients = PerClient(_ClientOrigins)

    def owner(self, uri: str, context: Context) -> str | None:
        """Return the server that sent a URI to this client."""
        return self._clients.of(context).owner(uri)

    def rewrite_uris(
        self, response: Response, server: str, owners: ResourceRouting, context: Context
    ) -> Response:
        """Return the response for the client: a URI that another server owns too is prefixed with
        its own server."""
        known = self._clients.of(context)
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


def _uris(result: bytes) -> Iterator[tuple[int, int, str]]:
    """Yield the first URIs of a result, each with its start and end.

    A result may be large, and decoding it takes far longer than passing it on. Quotes within texts
    are escaped, so a quoted key followed by a colon is a key.
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
    """True if one of the keys ends here."""
    key = next((key for key in _KEYS if result.endswith(key, 0, end)), None)
    return key is not None and result[end - len(key) - 1 : end - len(key)] != b"\\"


def _record(uri: str, server: str, owners: ResourceRouting, known: _ClientOrigins) -> str:
    """Record a URI without an owner; a URI that another server sent before stays that server's."""
    before = known.owner(uri)
    if before is not None and before != server and before in owners.servers:
        return owners.prefixed(server, uri)
    known.record(uri, server)
    return uri
