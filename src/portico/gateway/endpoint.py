"""One doorway of the gateway: to all servers, or to those of a group."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Protocol

import msgspec
from msgspec import Struct

from portico.catalog.snapshot import Identity
from portico.catalog.union import Place, Union
from portico.chain.fold import terminus
from portico.gateway import metatools
from portico.gateway.answers import failed, own_failure, said
from portico.gateway.desk import Desk, mistaken
from portico.gateway.desk import House as DeskHouse
from portico.gateway.front import Front
from portico.gateway.front import House as FrontHouse
from portico.gateway.inward import (
    Mistake,
    UnknownTool,
    at,
    called,
    executed,
    referring,
    withheld,
)
from portico.gateway.mentions import MARK, Mentions
from portico.gateway.witnessed import Passing, Witness
from portico.model.context import Context
from portico.model.errors import INVALID_PARAMS, InvalidParams, McpError
from portico.model.message import NOTHING, Request, Response
from portico.protocol.codec import error_response
from portico.protocol.core import Core, decode_params, mcp_error_response, respond
from portico.protocol.tasks import without_tasks
from portico.upstream.express import awaited

_OURS = ("notifications/initialized", "notifications/cancelled")
_LEVEL_S = 2.0
"""How long servers may take to hear which log messages a client wants."""
FIRST_S = 10.0
"""How long the very first list waits for what servers offer."""
_LISTS = ("tools/list", "resources/list", "resources/templates/list", "prompts/list")


class House(DeskHouse, FrontHouse, Protocol):
    """What an endpoint knows of the gateway."""

    def failed(self, request: Request, error: BaseException) -> None:
        """Tell the operator where we failed ourselves."""
        ...


class _Reference(Struct, frozen=True):
    type: str = ""
    name: str = ""
    uri: str = ""


class _Complete(Struct):
    ref: _Reference = _Reference()


class _Level(Struct):
    level: str = ""


class GatewayEndpoint:
    """Serves several upstreams as one."""

    def __init__(
        self,
        house: House,
        identity: Identity,
        *,
        searches: bool,
        told: Callable[[Union, Sequence[str]], str],
        witness: Witness,
        servers: Callable[[], Sequence[str]] | None = None,
    ) -> None:
        """`searches` shows the meta-tools and what is pinned instead of every tool; `told` says in
        few words what is behind; `servers` names those of a group."""
        self._house = house
        self._witness = witness
        self._mentions = Mentions()
        front = self.front = Front(house, identity, searches=searches, told=told, servers=servers)
        self.desk = Desk(house, lambda: front.union, front.servers)
        self._core = Core(front.catalog, self._beyond, front.hub)
        self._core.door = self._follow
        self._searches = searches
        self._quick = self._core.quick if searches else self._quick_once_known

    def quick(self, request: Request, context: Context) -> Response | None:
        """The answer if it needs no waiting: what is static."""
        if request.id:
            response = self._quick(request, context)
            if request.method == "initialize" and context.session is not None:
                declared = context.session.capabilities
                context.session.capabilities = without_tasks(declared)
            return response
        if request.method not in _OURS:
            for name in self.front.servers():
                self._house.members[name].upstream.notice(request, context)
        return NOTHING

    def _quick_once_known(self, request: Request, context: Context) -> Response | None:
        """The same, but as long as nothing is known, lists wait: many clients ask for them once."""
        if self.front.union.shares:
            self._quick = self._core.quick
        elif request.method in _LISTS:
            return None
        return self._core.quick(request, context)

    def express(
        self, request: Request, context: Context, reply: Callable[[Response], None]
    ) -> Passing | None:
        """Begin a call that only needs to be passed on; None if it has to be handled."""
        if request.method != "tools/call":
            return None
        try:
            found = self._inner(request)
        except (Mistake, InvalidParams, msgspec.DecodeError):
            return None  # it is put into words the long way
        if found is None:
            return None
        (share, tool), inner = found
        if context.headers is not None and share.header_params(tool):
            return None  # the headers are to be held against the arguments
        member = self._house.members.get(share.server)
        if member is None:
            return None
        passing = Passing(self._witness, request, context, share.server, tool, reply, self._shown)
        inner, inward = withheld(inner), _plain(context)
        passing.express = member.upstream.express("tools", inner, inward, passing.answered)
        return None if passing.express is None else passing

    async def handle(self, request: Request, context: Context) -> Response:
        """The answer; whatever goes wrong is the answer to this request only."""
        response = await awaited(self.express, request, context)
        if response is None:
            response = await respond(self._answer, request, context, self._house.failed)
        return response

    async def _answer(self, request: Request, context: Context) -> Response:
        if request.method in _LISTS and not self._searches and not self.front.union.shares:
            await self._first_words()
        response = await self._core.answer(request, context)
        if request.method == "logging/setLevel" and response.result:
            await self._set_level(decode_params(request, _Level).level, request, context)
        return response

    async def _first_words(self) -> None:
        """Wait, but not long, for servers of which nothing was ever known."""
        members = [self._house.members[name] for name in self.front.servers()]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_S):
                await asyncio.gather(*(self._house.learn(m.name) for m in members if not m.problem))

    async def _set_level(self, level: str, request: Request, context: Context) -> None:
        """Tell all servers, without waiting for one that does not answer."""
        upstreams = [self._house.members[name].upstream for name in self.front.servers()]
        telling = [
            asyncio.ensure_future(upstream.set_level(level, request, context))
            for upstream in upstreams
        ]
        for task in telling:
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
        if telling:
            await asyncio.wait(telling, timeout=_LEVEL_S)

    async def _beyond(self, request: Request, context: Context) -> Response:
        if request.method == "tools/call":
            return await self._call(request, context)
        found = self._find(request, context)
        if found is None:
            return terminus(request)
        server, inner = found
        return await self._pass_on(request, context, server, inner)

    async def _follow(self, ask: Request, asker: Context) -> Response:
        """Follow a resource for a modern listener, in its own era where its server has that."""
        ask.version = asker.version or ask.version
        return await self._beyond(ask, asker)

    async def _call(self, request: Request, context: Context) -> Response:
        if request.name in metatools.NAMES and request.name != metatools.EXECUTE:
            began = perf_counter()
            try:
                result = await self.desk.answer(request, context)
            except Mistake as error:
                result = mistaken(error)
            response = said(request, context, result)
            self._witness(request, context, "", request.name, response, began)
            return response
        began = perf_counter()
        try:
            found = await self._found(request)
        except Mistake as error:
            if isinstance(error, UnknownTool):
                error = self.desk.unknown(error.name)
            response = said(request, context, mistaken(error))
            server, tool = _meant(request, error)
            self._witness(request, context, server, tool, response, began)
            return response
        except InvalidParams as error:
            response = mcp_error_response(request.id, error)
            self._witness(request, context, "", request.name, response, began)
            return response
        if found is None:
            return self._nobodys(request)
        (share, _), inner = found
        try:
            return await self._pass_on(request, context, share.server, inner)
        except McpError as error:
            if request.name != metatools.EXECUTE:
                raise
            return failed(request, context, error)

    def _nobodys(self, request: Request) -> Response:
        """The answer to a call of what is no tool, as far as we know."""
        untold = self.desk.untold(request.name)
        if not untold:
            return terminus(request)
        words = f"unknown tool: {request.name[:200]}; {untold}"
        return error_response(request.id, INVALID_PARAMS, words)

    async def _pass_on(
        self, request: Request, context: Context, server: str, inner: Request
    ) -> Response:
        member = self._house.members.get(server)
        if member is None:
            return terminus(request)
        began = perf_counter()
        response: Response | None = None
        name = inner.name or inner.uri
        try:
            response = await member.upstream.relay(withheld(inner), _plain(context))
            response = self._outward(context, server, response)
        except McpError as error:
            response = mcp_error_response(request.id, error)
            raise
        finally:
            self._witness(request, context, server, name, response, began)
        return response

    def _inner(self, request: Request) -> tuple[Place, Request] | None:
        """Whose tool is called, and the call as its server gets it; raises Mistake.

        Checking arguments takes time, so each request is checked once for each union.
        """
        union = self.front.union
        if request.found is None or request.found[0] is not union:
            request.found = (union, self._checked(request, union))
        outcome: tuple[Place, Request] | Mistake | None = request.found[1]
        if isinstance(outcome, Mistake):
            raise outcome
        return outcome

    def _checked(self, request: Request, union: Union) -> tuple[Place, Request] | Mistake | None:
        if request.name != metatools.EXECUTE:
            place = union.tool(request.name)
            return None if place is None else (place, called(request, place[1]))
        try:
            return executed(request, union)
        except Mistake as mistake:
            return mistake

    async def _found(self, request: Request) -> tuple[Place, Request] | None:
        """The same; a server that has not said yet which tools it has is waited for."""
        try:
            found = self._inner(request)
        except UnknownTool as error:
            if not await self.desk.knows(error.name):
                raise
            return self._inner(request)
        if found is None and await self.desk.knows(request.name):
            found = self._inner(request)
        return found

    def _find(self, request: Request, context: Context) -> tuple[str, Request] | None:
        """Whose prompt or resource is asked for, and the request as its server gets it."""
        if request.method == "prompts/get":
            place = self.front.union.prompt(request.name)
            return None if place is None else (place[0].server, called(request, place[1]))
        if request.method == "completion/complete":
            return self._find_reference(request, context)
        if not request.method.startswith("resources/"):
            return None
        server, uri = self._owner(request.uri, context)
        return None if server is None else (server, at(request, uri))

    def _find_reference(self, request: Request, context: Context) -> tuple[str, Request] | None:
        reference = decode_params(request, _Complete).ref
        if reference.type == "ref/prompt":
            place = self.front.union.prompt(reference.name)
            if place is None:
                return None
            return place[0].server, referring(request, "name", place[1])
        server, uri = self._owner(reference.uri, context)
        return None if server is None else (server, referring(request, "uri", uri))

    def _owner(self, uri: str, context: Context) -> tuple[str | None, str]:
        server, own = self.front.union.resource(uri)
        if server is None:
            server = self._mentions.owner(uri, context) or self.front.union.ownership.fallback(uri)
        return server, own

    def _outward(self, context: Context, server: str, response: Response) -> Response:
        if response.result.find(MARK) < 0:
            return response
        return self._mentions.noted(response, server, self.front.union.ownership, context)

    def _shown(
        self, request: Request, context: Context, server: str, response: Response
    ) -> Response:
        """The answer to a call by its short way, as the client gets it."""
        if response.error and request.name == metatools.EXECUTE:
            failure = own_failure(response, server)
            context.server_info = self.front.catalog().identity
            return response if failure is None else failed(request, context, failure)
        return self._outward(context, server, response)


def _meant(request: Request, mistake: Mistake) -> tuple[str, str]:
    """Whose tool was called by mistake: ours, unless it is known."""
    if mistake.place is None:
        return "", request.name
    share, tool = mistake.place
    return share.server, tool


def _plain(context: Context) -> Context:
    """For a server's own call the headers are made anew: they were about ours."""
    return context if context.headers is None else context.inward()
