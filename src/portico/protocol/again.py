"""Reads lines as `inbound.read` does, and one that differs from an earlier one only in its id at
once: clients ask for the same few lists again and again."""

from msgspec.structs import replace

from portico.model.message import Request
from portico.model.methods import Kind
from portico.model.version import Version
from portico.protocol.inbound import Inbound, read

_MOST = 16
_LONGEST = 2048
_ID = b'"id":'
_LIST, _DISCOVER = b'/list"', b'/discover"'


class Again:
    """Remembers, for one connection, how requests for what is static were read."""

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, bytes, bytes, Version | None], Request] = {}

    def read(self, line: bytes, assumed: Version | None) -> Inbound:
        """The same as `inbound.read(line, assumed)`."""
        if len(line) > _LONGEST or (line.find(_LIST) < 0 and line.find(_DISCOVER) < 0):
            return read(line, assumed)
        before, _, rest = line.partition(_ID)
        id, comma, after = rest.partition(b",")
        if not comma:  # the last of all, as some clients have it
            id, _, after = rest.partition(b"}")
        # A number spelled as JSON spells it, and nothing around it.
        if not id.isdigit() or id[0] == 48:
            return read(line, assumed)
        known = self._known.get((before, comma, after, assumed))
        if known is not None:
            return replace(known, id=id)
        inbound = read(line, assumed)
        if isinstance(inbound, Request) and _is_safe(inbound, id, before, after):
            if len(self._known) >= _MOST:
                self._known.clear()
            self._known[before, comma, after, assumed] = replace(inbound)
        return inbound


def _is_safe(request: Request, id: bytes, before: bytes, after: bytes) -> bool:
    """True if another number in the place of this id changes the id and nothing else."""
    meaning = request.meaning
    if meaning is None or meaning.kind is not Kind.STATIC or request.id != id:
        return False
    # One key of this name in all the line, and none in disguise: then it is the message's own.
    return all(b'"id"' not in part and b"\\" not in part for part in (before, after))
