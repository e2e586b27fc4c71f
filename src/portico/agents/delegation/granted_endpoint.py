"""The gateway's tools as one task's agent sees them: some of them, as its own principal."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any
from weakref import WeakSet

import msgspec
from msgspec import Raw, Struct

from portico.agents.delegation.delegate_definitions import AGENT_TOOL_NAMES
from portico.core.model.context import Context
from portico.core.model.errors import INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND
from portico.core.model.message import NOTHING, Request, Response
from portico.core.model.methods import LISTEN
from portico.core.model.session import Session
from portico.core.model.types import Answer, Change, Endpoint
from portico.core.protocol.codec import decoded, encode, error_response
from portico.core.protocol.eras import members, with_capabilities
from portico.core.protocol.listen import change_message
from portico.core.protocol.tasks import is_about_task
from portico.core.state.pending import after
from portico.library.chain.fold import terminus
from portico.library.tasks.mcp.task_tool_definitions import TASK_TOOL_NAMES

DELEGATION_TOOLS = frozenset((*AGENT_TOOL_NAMES, *TASK_TOOL_NAMES))
"""The tools of an agent that may delegate further; they show it its own tasks only."""
_PASSED = frozenset(("ping", "logging/setLevel"))
_FOLLOWED = ("toolsListChanged", "taskIds")
_HIDDEN = ("resources", "prompts", "completions")
"""Capabilities that an agent has no access to."""
_ELICITATION = "elicitation"
_ENDED = "the task has ended, and its access to these tools with it"
_NO_FURTHER = "this agent may not delegate further; do the work yourself"


class _Named(Struct):
    name: str = ""


class _Capable(Struct):
    capabilities: dict[str, Raw] = {}


class GrantedEndpoint:
    """The endpoint of one task's agent, until the access ends."""

    def __init__(
        self,
        endpoint: Endpoint,
        principal: str,
        tools: Sequence[str],
        *,
        delegates: bool,
        reserved: Collection[str] = (),
    ) -> None:
        """`tools` are patterns; tools with a reserved name never match. `delegates` adds the tools
        for further delegations."""
        self.principal = principal
        self.listed = asyncio.Event()
        """Set once the agent has listed the tools."""
        self._next = endpoint.handle
        self._tools = tuple(tools)
        self._delegates = delegates
        self._reserved = frozenset(reserved) | DELEGATION_TOOLS
        self._sessions: WeakSet[Session] = WeakSet()
        """Of the clients that have listed the tools."""
        self._end_callbacks: list[Callable[[], object]] | None = []
        self._methods: dict[str, Callable[[Request, Context], Answer]] = {
            "initialize": self._introduce,
            "server/discover": self._introduce,
            "tools/list": self._list,
            "tools/call": self._call,
            LISTEN: self._listen,
            "tasks/update": _refuse_answers,
        }

    def handle(self, request: Request, context: Context) -> Answer:
        """Answer a request within the limits of the grant."""
        if self.has_ended:
            return error_response(request.id, INVALID_REQUEST, _ENDED) if request.id else NOTHING
        context.principal = self.principal
        request = _without_person(request, context)
        act = self._methods.get(request.method)
        if act is not None and request.id:
            return act(request, context)
        if not request.id or request.method in _PASSED or is_about_task(request.method):
            return self._next(request, context)
        why = f"method not found: {request.method[:200]}"
        return error_response(request.id, METHOD_NOT_FOUND, why)

    def adopt(self, other: "GrantedEndpoint") -> None:
        """Grant from now on what another endpoint grants, until that one ends."""
        self._next = other._next  # in the folder of the task
        self.principal, self._reserved = other.principal, other._reserved
        self._tools, self._delegates = other._tools, other._delegates
        other.on_end(self.end)
        for session in self._sessions:
            session.send(change_message(Change("tools")))

    def allows(self, tool: str) -> bool:
        """True if the agent may call this tool."""
        return self.lists(tool) or (self._delegates and tool in DELEGATION_TOOLS)

    def lists(self, tool: str) -> bool:
        """True if the config of the agent lists this tool."""
        if tool in self._reserved:
            return False
        return any(fnmatchcase(tool, pattern) for pattern in self._tools)

    @property
    def has_ended(self) -> bool:
        """True once the access has ended."""
        return self._end_callbacks is None

    def on_end(self, callback: Callable[[], object]) -> None:
        """Call a function when the access ends, or now if it has ended."""
        if self._end_callbacks is None:
            callback()
        else:
            self._end_callbacks.append(callback)

    def end(self) -> None:
        """Refuse everything from now on."""
        callbacks, self._end_callbacks = self._end_callbacks or [], None
        for callback in callbacks:
            callback()

    def _call(self, request: Request, context: Context) -> Answer:
        if self.allows(request.name):
            return self._next(request, context)
        if request.name in AGENT_TOOL_NAMES:
            return error_response(request.id, INVALID_PARAMS, _NO_FURTHER)
        return terminus(request)

    def _list(self, request: Request, context: Context) -> Answer:
        if context.session is not None:
            self._sessions.add(context.session)
        return after(self._next(request, context), self._shown)

    def _shown(self, response: Response) -> Response:
        """Return a page of tools without those that the agent may not call."""
        if not response.result:
            return response
        self.listed.set()
        page = msgspec.json.decode(response.result, type=dict[str, Raw])
        tools = msgspec.json.decode(page["tools"], type=list[Raw])
        allowed = [one for one in tools if self.allows(_name_of(one))]
        return _with_result(response, {**page, "tools": allowed})

    def _introduce(self, request: Request, context: Context) -> Answer:
        return after(self._next(request, context), _without_capabilities)

    def _listen(self, request: Request, context: Context) -> Answer:
        """Let the agent follow the list of tools and its own tasks, not resources."""
        params = members(request.params)
        if "notifications" in params:
            wanted = members(params["notifications"])
            kept = {name: value for name, value in wanted.items() if name in _FOLLOWED}
            request.params = encode({**params, "notifications": kept})
        return self._next(request, context)


def _without_person(request: Request, context: Context) -> Request:
    """Return a request of a client that cannot ask a person: the agent would answer itself."""
    session = context.session
    if session is not None and _ELICITATION in session.capabilities:
        session.capabilities = _others(session.capabilities)
    if not request.meta.client_capabilities:
        return request
    # Decoded first: a name may be written with escapes.
    declared = decoded(request.meta.client_capabilities, dict[str, Any])
    if declared is not None and _ELICITATION not in declared:
        return request
    return with_capabilities(request, encode(_others(declared or {})))


def _others(capabilities: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in capabilities.items() if name != _ELICITATION}


def _refuse_answers(request: Request, _: Context) -> Response:
    why = "only a person answers such questions; agent_status answers those for a model"
    return error_response(request.id, INVALID_REQUEST, why)


def _name_of(tool: Raw) -> str:
    return msgspec.json.decode(tool, type=_Named).name


def _without_capabilities(response: Response) -> Response:
    if not response.result:
        return response
    fields = msgspec.json.decode(response.result, type=dict[str, Raw])
    known = msgspec.json.decode(response.result, type=_Capable).capabilities
    kept = {name: value for name, value in known.items() if name not in _HIDDEN}
    return _with_result(response, {**fields, "capabilities": kept})


def _with_result(response: Response, fields: dict[str, object]) -> Response:
    return msgspec.structs.replace(response, result=encode(fields))
