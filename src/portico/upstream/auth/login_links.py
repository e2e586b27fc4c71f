"""Links in calls: the answer to a call that needs a login, for clients that can show a page.

The result for a modern client is a question, and the client sends its call again with the answer. A
client of 2025-11-25 gets an error that lists the page, and a notification of the completed login.
The link leads to this machine, so the browser of a client must be here. Agents never get a link.
"""

import asyncio
import os
import time
from collections.abc import Callable
from typing import Any

from msgspec import Raw, Struct
from msgspec.structs import replace

from portico.core.config.auth_settings import AuthSettings
from portico.core.model.context import LOCAL, Context
from portico.core.model.errors import InvalidParams, McpError, TargetError
from portico.core.model.message import Request, Response
from portico.core.model.methods import ELICIT
from portico.core.model.session import Session
from portico.core.model.version import Version
from portico.core.protocol.codec import decoded, encode, error_response
from portico.core.protocol.eras import URL_REQUIRED, declares, members
from portico.core.protocol.result_fields import identified
from portico.core.state.background import Background
from portico.core.state.sealed_states import SealedStates
from portico.upstream.auth import login_news
from portico.upstream.auth.flow import LoginError, Visit, shown
from portico.upstream.auth.link_reach import reaches_clients
from portico.upstream.auth.login import Login, LoginPlace, login_command
from portico.upstream.auth.login_link import LoginLink
from portico.upstream.auth.login_state import LOGIN_STATE
from portico.upstream.auth.login_store import LoginStore
from portico.upstream.auth.page_login import PageLogin
from portico.upstream.auth.redirect_listener import RedirectListener

LIFE_S = 600.0
"""How long a link is good."""
_PREFIX = LOGIN_STATE.decode()
_READY_S = 20.0
"""How long the authorization server may take until there is a page."""
_WAIT_S = 30.0
"""How long a call waits for a person, before its client gets the link again."""
_KEY = "portico_login"
_FIELDS = ("inputResponses", "requestState")
_COMPLETE = b'{"jsonrpc":"2.0","method":"notifications/elicitation/complete","params":%b}'


class _Answer(Struct):
    action: str


class PendingLogin:
    """A login that waits for a person at a browser."""

    def __init__(self, scopes: tuple[str, ...]) -> None:
        self.id = os.urandom(12).hex()
        self.scopes = scopes
        self.link = LoginLink(os.urandom)
        self.url = ""
        self.issuer = ""
        self.ready = asyncio.Event()
        """Set when there is a page, or no login any more."""
        self.sessions: set[Session] = set()
        """The legacy clients that got the link."""
        self.task: asyncio.Task[Login] | None = None

    @property
    def is_open(self) -> bool:
        """True while its link can be used."""
        return self.task is not None and not self.task.done()


class LoginLinks:
    """The links to the login at one place; all clients share the one that is open."""

    def __init__(
        self,
        place: LoginPlace,
        auth: AuthSettings,
        store: LoginStore,
        *,
        life_s: float = LIFE_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._life_s = life_s
        self._place = place
        self._page = PageLogin(place, auth, store)
        self._states = SealedStates(os.urandom(32), clock, life_s)
        self._pending: PendingLogin | None = None
        self._starting = asyncio.Lock()
        self._closing = Background()

    async def offer(
        self, request: Request, context: Context, error: TargetError
    ) -> Response | None:
        """Return the answer with a link to the login that an error names; None if this client
        cannot have one."""
        if not _may_have_link(request, context) or not error.details.get("command"):
            return None
        scopes = tuple(error.details.get("scopes", ()))
        async with self._starting:
            pending = await self._opened(scopes)
        if pending is None:
            return None
        if request.version.modern:
            fields = members(request.params)
            inner = {key: bytes(fields[key]).decode() for key in _FIELDS if key in fields}
            return await self._question(request, context, pending, inner)
        return self._legacy_error(request, context, pending, error)

    async def resume(self, request: Request, context: Context) -> Request | Response:
        """Wait for the login that a call was answered with, and return the call as it was; or the
        link again, if the person needs longer. Raises McpError if there is no login."""
        fields = members(request.params)
        sealed = decoded(fields.pop("requestState", b""), str) or ""
        if not sealed.startswith(_PREFIX):
            return request  # that of the server, or the words are in an argument
        opened = await self._states.open(sealed.removeprefix(_PREFIX), request, context.principal)
        login, inner = opened["login"], opened["inner"]
        given = members(fields.pop("inputResponses", b"")).get(_KEY, b"")
        answer = decoded(given, _Answer)
        if answer is None or answer.action not in ("accept", "decline", "cancel"):
            raise InvalidParams(f"the answer to {_KEY} must have an action")
        pending = self._pending
        if pending is not None and pending.id != login:
            pending = None  # it is over, and the call fails with the problem of now
        if answer.action != "accept":
            if pending is not None and not pending.link.is_opened:
                self._cancel(pending)
            raise self._not_logged_in("the login was declined")
        if pending is not None and not await self._is_complete(pending, context):
            return await self._question(request, context, pending, inner)
        fields |= {key: Raw(text.encode()) for key, text in inner.items()}
        return replace(request, params=encode(fields))

    async def close(self) -> None:
        """End a login that still waits for its person."""
        if self._pending is not None:
            self._cancel(self._pending)
        await self._closing.close()

    async def _opened(self, scopes: tuple[str, ...]) -> PendingLogin | None:
        """Return the login that waits for these scopes, with its page; None if there is none."""
        pending = self._pending
        if pending is None or not pending.is_open or pending.scopes != scopes:
            if pending is not None:
                self._cancel(pending)
            pending = self._pending = PendingLogin(scopes)
            pending.task = asyncio.create_task(self._log_in(pending))
            pending.task.add_done_callback(_retrieve)
        try:
            async with asyncio.timeout(_READY_S):
                await pending.ready.wait()
        except TimeoutError:
            self._cancel(pending)
        return pending if pending.is_open else None

    async def _log_in(self, pending: PendingLogin) -> Login:
        listener = RedirectListener(self._place.shown, pending.link)

        async def visit(wanted: Visit) -> str:
            pending.link.target, pending.issuer = wanted.url, wanted.issuer
            pending.url = listener.origin + pending.link.path
            waiting = asyncio.create_task(listener.wait(wanted.accepts))
            await listener.listening.wait()
            pending.ready.set()
            return await waiting

        try:
            page = self._page
            login = await page.obtain(pending.scopes, self._life_s, listener, visit, self._store)
        finally:
            pending.ready.set()
        done = encode({"elicitationId": pending.id})
        for session in pending.sessions:
            session.send(_COMPLETE % done)
        return login

    async def _store(self, login: Login) -> None:
        await self._page.save(login)
        await asyncio.to_thread(login_news.announce, self._place.key)

    async def _is_complete(self, pending: PendingLogin, context: Context) -> bool:
        """Wait for a person; False if that takes long. Raises McpError if the login failed."""
        task = pending.task
        assert task is not None
        # A call that has become a task has no client that could retry it.
        while not task.done():
            await asyncio.wait({task}, timeout=_WAIT_S)
            if context.task is None:
                break
        if not task.done():
            return False
        if task.cancelled():
            raise self._not_logged_in("the login was interrupted")
        if (error := task.exception()) is not None:
            why = str(error) if isinstance(error, LoginError) else "an internal error"
            raise self._not_logged_in(why)
        return True

    def _not_logged_in(self, why: str) -> McpError:
        server, command = self._place.shown, login_command(self._place)
        data = {"kind": "login", "server": server, "command": command}
        return McpError(f"{server} is not logged in: {why}; run `{command}`", data=data)

    async def _question(
        self, request: Request, context: Context, pending: PendingLogin, inner: dict[str, str]
    ) -> Response:
        state = {"login": pending.id, "inner": inner}
        sealed = await self._states.close(state, request, context.principal)
        params = {"mode": "url", "message": self._words(pending), "url": pending.url}
        result = {
            "resultType": "input_required",
            "inputRequests": {_KEY: {"method": ELICIT, "params": params}},
            "requestState": _PREFIX + sealed,
        }
        return Response(id=request.id, result=encode(identified(result, context.server_info)))

    def _legacy_error(
        self, request: Request, context: Context, pending: PendingLogin, error: TargetError
    ) -> Response:
        words = self._words(pending)
        page = {"mode": "url", "elicitationId": pending.id, "url": pending.url, "message": words}
        if context.session is not None:
            pending.sessions.add(context.session)
        # Neither kind nor server: a client must see the link, not a failure of the gateway.
        data = {"elicitations": [page], "command": error.details["command"]}
        return error_response(request.id, URL_REQUIRED, f"{words}; then call again", data)

    def _words(self, pending: PendingLogin) -> str:
        scopes = f" with the scopes {' '.join(pending.scopes)}" if pending.scopes else ""
        issuer = shown(pending.issuer)
        return f"{self._place.shown} requires a login{shown(scopes)} at {issuer}: open the page"

    def _cancel(self, pending: PendingLogin) -> None:
        if pending.task is not None and not pending.task.done():
            pending.task.cancel()
            self._closing.start(_ended(pending.task))


def _may_have_link(request: Request, context: Context) -> bool:
    """True if a person at this client can open a link to this machine."""
    # Agents are other principals, and so are clients without a token.
    if context.principal != LOCAL or context.task is not None or not reaches_clients():
        return False
    if request.meaning is None or not request.meaning.rounds or not request.id:
        return False
    if request.version < Version.V2025_11_25:
        return False
    if request.version.modern:
        declared = decoded(request.meta.client_capabilities, dict[str, Any])
    else:
        declared = None if context.session is None else context.session.capabilities
    return declared is not None and declares(declared, "elicitation", "url")


async def _ended(task: "asyncio.Task[Login]") -> None:
    await asyncio.wait({task})


def _retrieve(task: "asyncio.Task[Login]") -> None:
    if not task.cancelled():
        task.exception()  # a call may not wait for it
