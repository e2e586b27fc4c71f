"""Several endpoints in one app, each at its own path, with the same options."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from portico.core.http1.port import BodyReceiver, ResponseWriter, Scope
from portico.core.model.types import Endpoint, LimitedEndpoint
from portico.edge.transport.http_app import HttpApp

_RETIRE_S = 30.0
"""How long calls may run after their endpoint was removed."""
_TOKEN = ("token", "token_place")

FindAccess = Callable[[str], LimitedEndpoint | None]
"""Returns the endpoint of the client with a token of its own; None if there is none."""


class Routes(HttpApp):
    """The main endpoint at `/mcp`, and others that are looked up by path or by token."""

    def __init__(
        self,
        endpoint: Endpoint,
        find: Callable[[str], Endpoint | None],
        *,
        find_access: FindAccess | None = None,
        other_tokens: str = "",
        **options: Any,
    ) -> None:
        """`find` returns the endpoint at a path, or None; `find_access` is called with tokens that
        begin with `other_tokens`."""
        super().__init__(endpoint, **options)
        self.set_other_tokens(other_tokens)
        self._other_tokens = other_tokens
        self._find_endpoint = find
        self._find_access = find_access
        self._limited: dict[LimitedEndpoint, HttpApp] = {}
        self._options = {key: options[key] for key in options if key != "pages"}
        self._options["bodies"] = self.bodies
        self._apps: dict[str, tuple[Endpoint, HttpApp]] = {}
        self._draining = False
        self._retired: dict[HttpApp, asyncio.Task[None]] = {}

    def respond(self, scope: Scope, writer: ResponseWriter) -> BodyReceiver | None:
        """Respond to a request, or return what receives its body first."""
        app = self.app_at(scope["path"])
        return super().respond(scope, writer) if app is None else app.respond(scope, writer)

    def app_at(self, path: str) -> HttpApp | None:
        """Return the app at a path; None for the main one and for unknown paths."""
        if path == self.path:
            return None
        endpoint = self._find_endpoint(path)
        known = self._apps.get(path)
        if known is not None and known[0] is not endpoint:
            self._retire(self._apps.pop(path)[1])
            known = None
        if endpoint is None:
            return None
        if known is None:
            app = HttpApp(endpoint, **self._options, path=path, sse=False)
            app.set_other_tokens(self._other_tokens)
            known = self._apps[path] = (endpoint, app)
            if self._draining:
                app.begin_drain()
        return known[1]

    def app_of(self, token: str, path: str) -> HttpApp | None:
        """Return the app for the client with this token, which may use the main path only."""
        endpoint = None
        if path == self.path and self._find_access is not None:
            endpoint = self._find_access(token)
        if endpoint is None:
            return None
        app = self._limited.get(endpoint)
        if app is None:
            options = {key: self._options[key] for key in self._options if key not in _TOKEN}
            options |= {"path": path, "sse": False, "principal": endpoint.principal}
            app = self._limited[endpoint] = HttpApp(endpoint, **options)
            if self._draining:
                app.begin_drain()
            endpoint.on_end(partial(self._end_access, endpoint))
        return app

    def _end_access(self, endpoint: LimitedEndpoint) -> None:
        self._retire(self._limited.pop(endpoint), 0.0)

    def retire_stale(self) -> None:
        """Retire the apps whose endpoints were replaced or removed, before a request arrives."""
        for path in tuple(self._apps):
            self.app_at(path)

    def _retire(self, app: HttpApp, within_s: float = _RETIRE_S) -> None:
        """End the streams of a removed endpoint, and let its calls finish within this time."""
        self._retired[app] = retiring = asyncio.ensure_future(app.drain(within_s))
        retiring.add_done_callback(lambda _: self._retired.pop(app))

    def begin_drain(self) -> None:
        """Accept no new work at any path."""
        self._draining = True
        super().begin_drain()
        for app in self._further_apps():
            app.begin_drain()

    async def drain(self, within_s: float) -> None:
        """Let the calls at all paths finish within this time."""
        apps = [*self._further_apps(), *self._retired]
        await asyncio.gather(super().drain(within_s), *(app.drain(within_s) for app in apps))

    async def close(self) -> None:
        """Cancel the requests that are left at all paths."""
        apps = [*self._further_apps(), *self._retired]
        await asyncio.gather(super().close(), *(app.close() for app in apps))

    def _further_apps(self) -> list[HttpApp]:
        return [*(app for _, app in self._apps.values()), *self._limited.values()]
