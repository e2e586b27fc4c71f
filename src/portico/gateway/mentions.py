"""Which server told a client of which resource: what a result mentions can be read afterwards."""

from collections import OrderedDict
from typing import Any
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Raw

from portico.catalog.ownership import Ownership, under
from portico.catalog.uris import canonical
from portico.model.context import Context
from portico.model.message import Response
from portico.model.session import Session

_MOST = 1000
"""URIs looked at in one result, and kept for each client and server, the newest."""
_MOST_PRINCIPALS = 100
_KEYS = ("uri", "resourceUri", "ui/resourceUri")
MARK = b'ri"'
"""How each of these ends in JSON: a result without it mentions nothing."""


class _Known:
    """The URIs that one client was told of, and by whom; the first server to mention one has it."""

    def __init__(self) -> None:
        self._owners: dict[str, str] = {}
        self._by_server: dict[str, OrderedDict[str, None]] = {}

    def owner(self, uri: str) -> str | None:
        return self._owners.get(canonical(uri))

    def note(self, uri: str, server: str) -> None:
        """Keep it for this server; however many it mentions, those of others stay."""
        same = canonical(uri)
        self._owners[same] = server
        mine = self._by_server.setdefault(server, OrderedDict())
        mine[same] = None
        mine.move_to_end(same)
        if len(mine) > _MOST:
            oldest, _ = mine.popitem(last=False)
            if self._owners.get(oldest) == server:
                del self._owners[oldest]


# Slower, so only for what is written again: no float holds all that numbers may say.
_as_written = msgspec.json.Decoder(float_hook=lambda number: Raw(number.encode())).decode


class Mentions:
    """By client, the URIs that results mentioned, and whose they are."""

    def __init__(self) -> None:
        self._sessions: WeakKeyDictionary[Session, _Known] = WeakKeyDictionary()
        self._principals: OrderedDict[str, _Known] = OrderedDict()

    def owner(self, uri: str, context: Context) -> str | None:
        """Who mentioned it to this client."""
        return self._of(context).owner(uri)

    def noted(
        self, response: Response, server: str, owners: Ownership, context: Context
    ) -> Response:
        """The response as a client gets it: a resource that another server owns as well is shown
        under its own server's name."""
        known = self._of(context)
        result = response.result
        try:
            if not _walk(msgspec.json.decode(result), server, owners, known):
                return response
        except msgspec.ValidationError:
            pass  # a number past all floats
        except (msgspec.DecodeError, RecursionError):
            return response
        value = _as_written(result)
        if not _walk(value, server, owners, known):
            return response
        return Response(id=response.id, result=msgspec.json.encode(value))

    def _of(self, context: Context) -> _Known:
        if context.session is not None:
            found = self._sessions.get(context.session)
            if found is None:
                found = self._sessions[context.session] = _Known()
            return found
        found = self._principals.setdefault(context.principal, _Known())
        if len(self._principals) > _MOST_PRINCIPALS:
            self._principals.popitem(last=False)
        return found


def _walk(value: Any, server: str, owners: Ownership, known: _Known) -> bool:
    """Note every URI, and show it as it must be; True if anything is shown differently."""
    changed = False
    seen = 0
    waiting = [value]
    while waiting:
        at = waiting.pop()
        if isinstance(at, list):
            waiting += at
        elif isinstance(at, dict):
            for key, of in at.items():
                if isinstance(of, dict | list):
                    waiting.append(of)
                elif key in _KEYS and isinstance(of, str) and seen < _MOST:
                    seen += 1
                    shown = owners.shown(server, of)
                    if shown == of and owners.owner(of) is None:
                        shown = _noted(of, server, owners, known)
                    if shown != of:
                        at[key] = shown
                        changed = True
    return changed


def _noted(uri: str, server: str, owners: Ownership, known: _Known) -> str:
    """Note a URI that nobody owns; one that another server mentioned before stays that server's."""
    before = known.owner(uri)
    if before is not None and before != server and before in owners.servers:
        return under(server, uri)
    known.note(uri, server)
    return uri
