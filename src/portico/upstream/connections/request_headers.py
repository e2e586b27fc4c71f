"""The headers in which a modern HTTP request repeats parts of its body."""

from collections.abc import Mapping
from typing import Any

from portico.core.model.methods import TABLE
from portico.core.model.offer import HeaderParam
from portico.core.model.version import Version
from portico.core.protocol.ladder import (
    METHOD_HEADER,
    NAME_HEADER,
    VERSION_HEADER,
    encode_header,
    header_value,
)
from portico.core.protocol.tasks import MIRRORED


def request_headers(
    method: str,
    params: Mapping[str, Any],
    version: Version,
    declared: tuple[HeaderParam, ...] = (),
) -> dict[str, str]:
    """Return the headers of one request; `declared` are the tool's arguments to repeat."""
    headers = {VERSION_HEADER: version.text, METHOD_HEADER: method}
    meaning = TABLE.get((method, version))
    field = meaning.mirrored if meaning is not None else MIRRORED.get(method, "")
    if field:
        named = params.get(field) or params.get("name", "")
        headers[NAME_HEADER] = encode_header(str(named))
    for param in declared:
        value: Any = params.get("arguments")
        for step in param.path:
            value = value.get(step) if isinstance(value, Mapping) else None
        text = header_value(value)
        if text is not None:  # no value, no header
            headers[param.header] = encode_header(text)
    return headers
