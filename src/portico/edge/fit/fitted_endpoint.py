"""The endpoint of one window, chosen by the first message that names its client."""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias, runtime_checkable

import msgspec

from portico.core.model.context import Context
from portico.core.model.message import Request, Response
from portico.core.model.types import Answer, Endpoint, Handler
from portico.edge.fit.exposure_choice import ExposureChoice

Chosen: TypeAlias = "tuple[Endpoint, ExposureChoice] | asyncio.Task[None]"
Choose = Callable[[str, str], Chosen]
"""Returns the endpoint for a client's name and version, which are empty if it has sent none; or the
task to wait for before anything can be chosen."""


@runtime_checkable
class ChosenExposure(Protocol):
    """An endpoint whose exposure was chosen for its client."""

    choice: ExposureChoice | None
    """None until the client has sent a message."""
    on_choice: Callable[[ExposureChoice], None] | None
    """Called with the choice, once it is final."""


class FittedEndpoint:
    """Passes a window's requests to the endpoint that fits its client, which then stays."""

    def __init__(self, choose: Choose) -> None:
        self._choose = choose
        self._chosen: Endpoint | None = None
        self.choice: ExposureChoice | None = None
        self.on_choice: Callable[[ExposureChoice], None] | None = None

    def handle(self, request: Request, context: Context) -> Answer:
        """Answer a request as the chosen endpoint does."""
        chosen = self._chosen
        if chosen is None:
            name, version = client_in(request)
            found = self._choose(name, version)
            if isinstance(found, asyncio.Task):
                return after_task(found, self.handle, request, context)
            chosen, self.choice = found
            # A handshake decides even without a name: the session belongs to its endpoint.
            if name or request.method == "initialize":
                self._chosen = chosen
                if self.on_choice is not None:
                    self.on_choice(self.choice)
        return chosen.handle(request, context)


async def after_task(
    task: "asyncio.Task[None]", handle: Handler, request: Request, context: Context
) -> Response:
    """Answer a request once a task has ended, whether it failed or not."""
    await asyncio.wait({task})
    answer = handle(request, context)
    return answer if isinstance(answer, Response) else await answer


def client_in(request: Request) -> tuple[str, str]:
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
