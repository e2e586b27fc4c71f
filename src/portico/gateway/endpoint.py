"""One doorway of the gateway: to all servers, or to those of a group."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from portico.catalog.catalog import Identity
from portico.catalog.merge import Merged, Place
from portico.chain.core import Core, respond
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
from portico.model.session import Session
from portico.model.types import Answer
from portico.protocol.codec import decode_params, error_response, mcp_error_response
from portico.protocol.eras import URL_REQUIRED
from portico.protocol.tasks import without_tasks
from portico.state.pending import Pending
from portico.upstream.questions import named_error, named_result

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
        told: Callable[[Merged, Sequence[str]], str],
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
        self._waits_for_lists = not searches

    def handle(self, request: Request, context: Context) -> Answer:
        """The answer; whatever goes wrong is the answer to this request only."""
        if request.id:
            return respond(self._answer, request, context, self._house.failed)
        if request.method not in _OURS:
            for name in self.front.servers():
                self._house.members[name].upstream.notice(request, context)
        return NOTHING

    def _answer(self, request: Request, context: Context) -> Answer:
        if self._waits_for_lists and request.method in _LISTS:
            if not self.front.union.shares:
                return self._first_list(request, context)
            self._waits_for_lists = False
        if request.method == "logging/setLevel":
            return self._level(request, context)
        answer = self._core.answer(request, context)
        if request.method == "initialize" and context.session is not None:
            self._admit(context.session)
        return answer

    def _admit(self, session: Session) -> None:
        """A legacy client has said hello: it follows no tasks here, and is told who asks."""
        session.capabilities = without_tasks(session.capabilities)
        session.names_askers = True

    async def _first_list(self, request: Request, context: Context) -> Response:
        """As long as nothing is known, lists wait: many clients ask for them once."""
        await self._first_words()
        return await self._core.answer(request, context)

    async def _level(self, request: Request, context: Context) -> Response:
        response = await self._core.answer(request, context)
        if response.result:
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

    def _beyond(self, request: Request, context: Context) -> Answer:
        if request.method == "tools/call":
            return self._call(request, context)
        found = self._find(request, context)
        if found is None:
            return terminus(request)
        server, inner = found
        return self._pass_on(request, context, server, inner)

    def _follow(self, ask: Request, asker: Context) -> Answer:
        """Follow a resource for a modern listener, in its own era where its server has that."""
        ask.at(asker.version or ask.version)
        return self._beyond(ask, asker)

    def _call(self, request: Request, context: Context) -> Answer:
        if request.name in metatools.NAMES and request.name != metatools.EXECUTE:
            return self._meta_call(request, context)
        began = perf_counter()
        try:
            found = self._inner(request)
        except UnknownTool as error:
            return self._late_call(request, context, error.name, began)
        except Mistake as error:
            return self._mistaken(request, context, error, began)
        except InvalidParams as error:
            response = mcp_error_response(request.id, error)
            self._witness(request, context, "", request.name, response, began)
            return response
        if found is None:
            return self._late_call(request, context, request.name, began)
        return self._found_call(request, context, found)

    async def _meta_call(self, request: Request, context: Context) -> Response:
        began = perf_counter()
        try:
            result = await self.desk.answer(request, context)
        except Mistake as error:
            result = mistaken(error)
        response = said(request, context, result)
        if not metatools.is_own_query(request):
            self._witness(request, context, "", request.name, response, began)
        return response

    async def _late_call(
        self, request: Request, context: Context, name: str, began: float
    ) -> Response:
        """Call a tool of a server that has not said yet which tools it has, once it has."""
        knows = await self.desk.knows(name)
        try:
            found = self._inner(request) if knows else None
        except Mistake as error:
            return self._mistaken(request, context, error, began)
        if found is not None:
            return await self._found_call(request, context, found)
        if request.name != metatools.EXECUTE:
            return self._nobodys(request)
        return self._mistaken(request, context, UnknownTool(name), began)

    def _mistaken(
        self, request: Request, context: Context, error: Mistake, began: float
    ) -> Response:
        if isinstance(error, UnknownTool):
            error = self.desk.unknown(error.name)
        response = said(request, context, mistaken(error))
        server, tool = _meant(request, error)
        self._witness(request, context, server, tool, response, began)
        return response

    def _found_call(
        self, request: Request, context: Context, found: tuple[Place, Request]
    ) -> Answer:
        (share, _), inner = found
        answer = self._pass_on(request, context, share.server, inner)
        if request.name == metatools.EXECUTE and not isinstance(answer, Pending):
            return self._in_words(request, context, answer)
        return answer

    async def _in_words(self, request: Request, context: Context, answer: Answer) -> Response:
        """The answer to `execute_tool`: a failure of ours is a result that a model reads."""
        try:
            return await answer
        except McpError as error:
            return failed(request, context, error)

    def _nobodys(self, request: Request) -> Response:
        """The answer to a call of what is no tool, as far as we know."""
        untold = self.desk.untold(request.name)
        if not untold:
            return terminus(request)
        words = f"unknown tool: {request.name[:200]}; {untold}"
        return error_response(request.id, INVALID_PARAMS, words)

    def _pass_on(self, request: Request, context: Context, server: str, inner: Request) -> Answer:
        member = self._house.members.get(server)
        if member is None:
            return terminus(request)
        name = inner.name or inner.uri
        answer = member.upstream.answer(withheld(inner), _plain(context))
        if isinstance(answer, Pending):
            return Passing(answer, self._witness, request, context, server, name, self._shown)
        return self._passed_on(request, context, server, name, answer)

    async def _passed_on(
        self, request: Request, context: Context, server: str, name: str, answer: Answer
    ) -> Response:
        began = perf_counter()
        response: Response | None = None
        try:
            response = self._outward(request, context, server, await answer)
        except McpError as error:
            response = mcp_error_response(request.id, error)
            raise
        finally:
            self._witness(request, context, server, name, response, began)
        return response

    def _inner(self, request: Request) -> tuple[Place, Request] | None:
        """Whose tool is called, and the call as its server gets it; raises Mistake."""
        if request.name == metatools.EXECUTE:
            return executed(request, self.front.union)
        place = self.front.union.tool(request.name)
        return None if place is None else (place, called(request, place[1]))

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

    def _outward(
        self, request: Request, context: Context, server: str, response: Response
    ) -> Response:
        if response.error:
            if response.code != URL_REQUIRED:
                return response
            return replace(response, error=named_error(response.error, server))
        if request.version.modern:
            result = named_result(response.result, server)
            if result is not response.result:
                response = replace(response, result=result)
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
            if failure is not None:
                return failed(request, context, failure)
        return self._outward(request, context, server, response)


def _meant(request: Request, mistake: Mistake) -> tuple[str, str]:
    """Whose tool was called by mistake: ours, unless it is known."""
    if mistake.place is None:
        return "", request.name
    share, tool = mistake.place
    return share.server, tool


def _plain(context: Context) -> Context:
    """For a server's own call the headers are made anew: they were about ours."""
    return context if context.headers is None else context.inward()
