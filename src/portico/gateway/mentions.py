"""Which server told a client of which resource: what a result mentions can be read afterwards."""

from collections import OrderedDict
from typing import Any
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Raw

from portico.catalog.ownership import Ownership
from portico.model.context import Context
from portico.model.message import Response
from portico.model.session import Session

_MOST = 1000
"""URIs looked at in one result, and kept for each client, the newest."""
_MOST_PRINCIPALS = 100
_KEYS = ("uri", "resourceUri", "ui/resourceUri")
MARK = b'ri"'
"""How each of these ends in JSON: a result without it mentions nothing."""

_Known = OrderedDict[str, str]

# Slower, so only for what is written again: no float holds all that numbers may say.
_as_written = msgspec.json.Decoder(float_hook=lambda number: Raw(number.encode())).decode


class Mentions:
    """By client, the URIs that results mentioned, and whose they are."""

    def __init__(self) -> None:
        self._sessions: WeakKeyDictionary[Session, _Known] = WeakKeyDictionary()
        self._principals: OrderedDict[str, _Known] = OrderedDict()

    def owner(self, uri: str, context: Context) -> str | None:
        """Who mentioned it to this client."""
        return self._of(context).get(uri)

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
                found = self._sessions[context.session] = OrderedDict()
            return found
        found = self._principals.setdefault(context.principal, OrderedDict())
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
                    if shown != of:
                        at[key] = shown
                        changed = True
                    elif owners.owner(of) is None:
                        known[of] = server
                        known.move_to_end(of)
                        if len(known) > _MOST:
                            known.popitem(last=False)
    return changed
