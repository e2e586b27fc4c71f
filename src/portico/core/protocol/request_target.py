"""A request under another name or URI."""

from copy import copy

from portico.core.model.message import Request
from portico.core.protocol.codec import encode
from portico.core.protocol.eras import members
from portico.core.protocol.exact import with_field


def with_target(request: Request, key: str, value: str) -> Request:
    """Return the request under another name or URI, with all other bytes unchanged."""
    made = copy(request)
    new = encode(value)
    if request.method == "completion/complete":
        reference = bytes(members(request.params).get("ref", b""))
        made.params = with_field(request.params, "ref", with_field(reference, key, new))
        return made
    made.params = with_field(request.params, key, new)
    if key == "name":
        made.name = value
    else:
        made.uri = value
    return made
