"""The endpoint of one window, chosen by the first message that names its client."""

from collections.abc import Callable
from typing import Any

import msgspec

from portico.model.context import Context
from portico.model.message import Request
from portico.model.types import Answer, Endpoint


class FittedEndpoint:
    """Passes a window's requests to the endpoint that fits its client, which then stays."""

    def __init__(self, choose: Callable[[str, str], Endpoint]) -> None:
        """`choose` returns the endpoint for a client's name and version; both are empty if it has
        sent none."""
        self._choose = choose
        self._chosen: Endpoint | None = None

    def handle(self, request: Request, context: Context) -> Answer:
        """Answer a request as the chosen endpoint does."""
        chosen = self._chosen
        if chosen is None:
            name, version = _client(request)
            chosen = self._choose(name, version)
            # A handshake decides even without a name: the session belongs to its endpoint.
            if name or request.method == "initialize":
                self._chosen = chosen
        return chosen.handle(request, context)


def _client(request: Request) -> tuple[str, str]:
    """Return the name and version in a message; empty if they are missing or not text."""
    try:
        if request.method == "initialize":
            info = request.decode().get("clientInfo")
        else:
            raw = request.meta.client_info
            info = msgspec.json.decode(raw) if raw else None
    except Exception:  # noqa: BLE001  (the endpoint itself rejects such a message)
        return "", ""
    if not isinstance(info, dict):
        return "", ""
    return _text(info.get("name")), _text(info.get("version"))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
