"""The stream by which a modern upstream reports changes."""

import asyncio
from collections.abc import Mapping
from typing import Any

from portico.core.model.errors import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    McpError,
    TargetError,
)
from portico.core.model.methods import LISTEN
from portico.core.protocol.codec import encode
from portico.upstream.connections.handshake import modern_meta
from portico.upstream.connections.request_headers import request_headers
from portico.upstream.connections.session import UpstreamSession
from portico.upstream.rpc.pending_request import FOREVER
from portico.upstream.wires.wire import LOGIN

_MIN_PAUSE_S = 1.0
_MAX_PAUSE_S = 30.0
_UNSUPPORTED_CODES = (INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS)


async def keep_listening(
    session: UpstreamSession, uris: list[str], info: Mapping[str, Any]
) -> None:
    """Subscribe to all lists and these resources, again whenever the stream ends."""
    wanted: dict[str, Any] = {
        f"{kind}ListChanged": True
        for kind in ("tools", "prompts", "resources")
        if kind in session.server.capabilities
    }
    if uris:
        wanted["resourceSubscriptions"] = uris
    meta = modern_meta(session.server.version, info, {})
    params = encode({"_meta": meta, "notifications": wanted})
    headers = {}
    if session.exchange.wire.has_headers:
        headers = request_headers(LISTEN, {}, session.server.version)
    pause = _MIN_PAUSE_S
    while not session.exchange.is_over():
        try:
            await session.request(LISTEN, params, timeout=FOREVER, headers=headers)
            pause = _MIN_PAUSE_S
        except McpError as error:
            if error.code in _UNSUPPORTED_CODES:
                return
            pause = min(2 * pause, _MAX_PAUSE_S)  # the upstream may be busy
        except TargetError as error:
            if session.exchange.is_over() or error.kind == LOGIN:
                return  # a login opens another session
            pause = min(2 * pause, _MAX_PAUSE_S)
        await asyncio.sleep(pause)
