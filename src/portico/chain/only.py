"""A link that lets through only what matches: a public door to a server that has more."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

from portico.chain.fold import terminus
from portico.model.context import Context
from portico.model.message import Request
from portico.model.offer import Offer
from portico.model.types import Answer, Handler


class Only:
    """Shows and serves the tools, resources and prompts whose names match; hides the rest."""

    def __init__(
        self,
        *,
        tools: Sequence[str] = (),
        resources: Sequence[str] = (),
        prompts: Sequence[str] = (),
    ) -> None:
        self._tools = tuple(tools)
        self._resources = tuple(resources)
        self._prompts = tuple(prompts)

    def __call__(self, next: Handler) -> Handler:
        """The next handler, reached only for what matches."""

        def guard(request: Request, context: Context) -> Answer:
            return next(request, context) if self._passes(request) else terminus(request)

        return guard

    def view(self, offer: Offer) -> Offer:
        """What of an offer is to be seen."""
        shows = {
            "tools": self._tools,
            "resources": self._resources,
            "templates": self._resources,
            "prompts": self._prompts,
        }
        return offer.keep(**{kind: partial(_matches, patterns) for kind, patterns in shows.items()})

    def _passes(self, request: Request) -> bool:
        if request.method == "tools/call":
            return _matches(self._tools, request.name)
        if request.method == "prompts/get":
            return _matches(self._prompts, request.name)
        if request.method in ("resources/read", "resources/subscribe", "resources/unsubscribe"):
            return _matches(self._resources, request.uri)
        if request.method == "completion/complete":
            return self._passes_reference(request.decode().get("ref"))
        return True

    def _passes_reference(self, reference: Any) -> bool:
        """Whether what is to be completed belongs to something that can be seen."""
        if not isinstance(reference, dict):
            return True  # malformed: whoever answers says so
        name, uri = str(reference.get("name", "")), str(reference.get("uri", ""))
        if reference.get("type") == "ref/prompt":
            return _matches(self._prompts, name)
        return _matches(self._resources, uri)


def _matches(patterns: tuple[str, ...], name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
