"""A link that exposes only the tools, resources and prompts that match patterns."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

from portico.core.model.context import Context
from portico.core.model.message import Request
from portico.core.model.offer import Offer
from portico.core.model.types import Answer, Handler
from portico.library.chain.fold import terminus


class Only:
    """Shows and serves the tools, resources and prompts whose names match; hides the rest."""

    def __init__(
        self,
        *,
        tools: Sequence[str] = (),
        resources: Sequence[str] = (),
        prompts: Sequence[str] = (),
        without: Sequence[str] = (),
    ) -> None:
        """Patterns for each kind; tools that also match one of `without` are hidden."""
        self._tools = tuple(tools)
        self._resources = tuple(resources)
        self._prompts = tuple(prompts)
        self._without = tuple(without)

    def __call__(self, next: Handler) -> Handler:
        """Return the next handler behind a guard."""

        def guard(request: Request, context: Context) -> Answer:
            return next(request, context) if self._passes(request) else terminus(request)

        return guard

    def view(self, offer: Offer) -> Offer:
        """Return the visible part of an offer."""
        return offer.keep(
            tools=self._shows_tool,
            resources=partial(_matches, self._resources),
            templates=partial(_matches, self._resources),
            prompts=partial(_matches, self._prompts),
        )

    def _shows_tool(self, name: str) -> bool:
        return _matches(self._tools, name) and not _matches(self._without, name)

    def _passes(self, request: Request) -> bool:
        if request.method == "tools/call":
            # The meta-tools are always visible; they find only visible tools.
            return request.asked == request.name or self._shows_tool(request.name)
        if request.method == "prompts/get":
            return _matches(self._prompts, request.name)
        if request.method in ("resources/read", "resources/subscribe", "resources/unsubscribe"):
            return _matches(self._resources, request.uri)
        if request.method == "completion/complete":
            return self._passes_reference(request.decode().get("ref"))
        return True

    def _passes_reference(self, reference: Any) -> bool:
        """Return True if the reference of a completion is visible."""
        if not isinstance(reference, dict):
            return True  # malformed: the provider rejects it
        name, uri = str(reference.get("name", "")), str(reference.get("uri", ""))
        if reference.get("type") == "ref/prompt":
            return _matches(self._prompts, name)
        return _matches(self._resources, uri)


def _matches(patterns: tuple[str, ...], name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
