"""The provider behind a `Server`: definitions and their functions."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct

from portico.core.definitions.schema import Schema
from portico.core.definitions.wording import render, type_name
from portico.core.model.context import Context
from portico.core.model.errors import (
    INTERNAL_ERROR,
    InvalidParams,
    McpError,
    MissingCapability,
    PorticoError,
    ToolError,
)
from portico.core.model.message import Request, Response
from portico.core.model.offer import Listed, Offer
from portico.core.model.types import Answer, Change, Report
from portico.core.model.version import Version
from portico.core.protocol.codec import encode
from portico.core.protocol.result_fields import EMPTY_RESULT, error_result, identified
from portico.library.functions.completions import Completer, completion_result
from portico.library.functions.handler_exceptions import NotAnException, leaves
from portico.library.functions.registered import Prompt, Registered, Resource, Template, Tool
from portico.library.functions.results import (
    WrongReturn,
    prompt_result,
    resource_result,
    tool_result,
)
from portico.library.functions.rounds import DirectAsker, ReplayAsker, Rounds, Suspended

if TYPE_CHECKING:
    from portico.core.state.client_sessions import ClientSessions, SessionValues
    from portico.library.functions.lifespan import Lifespan

_Found = tuple[Resource | Template, str, dict[str, str]]
"""A resource or template, the requested URI, and the template's variables in it."""


class _NamedParams(Struct):
    name: str
    arguments: dict[str, Any] | None = None


class _Reference(Struct):
    type: Literal["ref/prompt", "ref/resource"]
    name: str = ""
    uri: str = ""


class _Argument(Struct):
    name: str
    value: str


class _Known(Struct, frozen=True):
    arguments: dict[str, str] = {}


class _CompleteParams(Struct):
    ref: _Reference
    argument: _Argument
    context: _Known = _Known()


class FunctionProvider:
    """Answers requests with the functions that were registered."""

    calls_downstream = True
    """Its functions can call the tools of the providers after it."""

    def __init__(self, name: str, *, rounds: Rounds, report: Report) -> None:
        self.name = name
        self.tools: dict[str, Tool] = {}
        self.resources: dict[str, Resource] = {}
        self.templates: dict[str, Template] = {}
        self.prompts: dict[str, Prompt] = {}
        self.completers: dict[tuple[str, str], Completer] = {}
        self.cache: tuple[int, str] = (0, "private")
        """`ttlMs` and `cacheScope` of the results of `resources/read`."""
        self.capabilities: frozenset[str] = frozenset()
        self.call_timeout_s: float | None = None
        self.lifespan: Lifespan | None = None
        self.sessions: ClientSessions | None = None
        """Its own sessions; None for those of the process."""
        self.session_scope = name
        """The name under which it keeps values of sessions: unique beside other servers."""
        self._rounds = rounds
        self._report = report
        self._watchers: list[Callable[[Change], None]] = []
        self._changes = 0
        self._offer: tuple[int, Offer] | None = None

    # The offer.

    def offer(self) -> Offer:
        """Return all that is registered now."""
        cached, number = self._offer, self._changes
        if cached is None or cached[0] != number:
            offer = Offer(
                lists={
                    "tools": listed_entries(self.tools),
                    "resources": listed_entries(self.resources),
                    "templates": listed_entries(self.templates),
                    "prompts": listed_entries(self.prompts),
                },
                completions=bool(self.completers),
                subscriptions=True,
                declared=self.capabilities | self._task_capability(),
            )
            # With the number from the start: another thread may have changed something since.
            cached = self._offer = (number, offer)
        return cached[1]

    def _task_capability(self) -> frozenset[str]:
        has_tasks = any(tool.mode is not None for tool in self.tools.values())
        return frozenset({"tasks"} if has_tasks else ())

    def watch(self, changed: Callable[[Change], None]) -> None:
        """Call a function on every change."""
        self._watchers.append(changed)

    def changed(self, kind: str, uri: str = "") -> None:
        """Discard the cached offer and notify the watchers."""
        if not uri:
            self._changes += 1
        for watcher in self._watchers:
            watcher(Change(kind, uri))

    # The answers.

    def provide(self, request: Request, context: Context) -> Answer | None:
        """Answer a request for a registered item; return None for all others."""
        if request.method == "tools/call":
            tool = self.tools.get(request.name)
            return None if tool is None else self._call(tool, request, context)
        answer = _ANSWERS.get(request.method)
        return None if answer is None else answer(self, request, context)

    async def _call(self, tool: Tool, request: Request, context: Context) -> Response:
        """Run a tool; validate its arguments before and its structured result after."""
        invoke = tool.invoke
        if invoke is None:
            raise McpError(f"no handler for tool: {tool.name}", INTERNAL_ERROR)
        if request.arguments is not None:
            arguments = request.arguments  # a gateway has validated them
        else:
            arguments = request.decode_as(_NamedParams).arguments or {}
            problems = tool.input.problems(arguments, len(request.params))
            if problems:
                message = f"{tool.name}: {tool.input.describe(problems)}"
                if request.version < Version.V2025_11_25:
                    raise InvalidParams(message)
                return self._result(request, context, error_result(message))

        async def run(bound: Context) -> dict[str, Any]:
            value = await invoke(arguments, bound)
            if type(value) is str and tool.output is None:
                return {"content": [{"type": "text", "text": value}]}
            if tool.output is not None:
                _check_output(tool.output, value, tool.wrapped)
            structured = tool.output is not None
            return tool_result(
                value, structured=structured, wrapped=tool.wrapped, version=request.version
            )

        try:
            result = await self._rounded(request, context, run)
        except MissingCapability as missing:
            if request.version.modern:
                raise
            result = error_result(str(missing))
        except McpError:
            raise
        except ToolError as error:
            result = error_result(str(error))
        except WrongReturn as error:
            result = error_result(f"{tool.name}: {error}")
        except Exception as error:  # noqa: BLE001  (a handler may raise anything)
            self._report(request, error)
            result = error_result(f"{tool.name} failed: {_describe(error)}")
        try:
            return self._result(request, context, result)
        except McpError as error:  # an invalid result is a failure of the tool
            return self._result(request, context, error_result(f"{tool.name}: {error}"))

    def read_resource(self, request: Request, context: Context) -> Answer | None:
        """Read the resource or template that matches a URI."""
        if not request.uri and not request.name:
            raise InvalidParams("resources/read requires a uri or a name")
        found = self._find_resource(request.uri)
        return None if found is None else self._read(found, request, context)

    async def _read(self, found: _Found, request: Request, context: Context) -> Response:
        entry, uri, variables = found
        invoke = entry.invoke
        if invoke is None:
            raise McpError(f"no handler for resource: {entry.uri}", INTERNAL_ERROR)

        async def run(bound: Context) -> dict[str, Any]:
            value = await invoke({"uri": uri, **variables}, bound)
            return resource_result(value, uri, entry.mime_type)

        result = await self._guarded(request, context, run, f"reading {uri[:200]}")
        if request.version.modern and result.get("resultType") != "input_required":
            ttl_ms, scope = self.cache
            result = {"ttlMs": ttl_ms, "cacheScope": scope, **result}
        return self._result(request, context, result)

    def get_prompt(self, request: Request, context: Context) -> Answer | None:
        """Fill in a prompt."""
        prompt = self.prompts.get(request.name)
        return None if prompt is None else self._fill_in(prompt, request, context)

    async def _fill_in(self, prompt: Prompt, request: Request, context: Context) -> Response:
        arguments = request.decode_as(_NamedParams).arguments or {}
        missing = [a["name"] for a in prompt.arguments if a.get("required")]
        missing = [name for name in missing if name not in arguments]
        if missing:
            raise InvalidParams(f"prompt {prompt.name}: missing argument {', '.join(missing)}")
        for name, value in arguments.items():
            if not isinstance(value, str):
                got = f"{type_name(value)} {render(value)}"
                raise InvalidParams(
                    f"prompt {prompt.name}: {name[:80]}: expected string, got {got}"
                )
        invoke = prompt.invoke
        if invoke is None:
            raise McpError(f"no handler for prompt: {prompt.name}", INTERNAL_ERROR)

        async def run(bound: Context) -> dict[str, Any]:
            value = await invoke(dict(arguments), bound)
            return prompt_result(value, prompt.description, request.version)

        result = await self._guarded(request, context, run, f"prompt {prompt.name}")
        return self._result(request, context, result)

    def complete(self, request: Request, context: Context) -> Answer | None:
        """Complete one argument of a prompt or one variable of a template."""
        params = request.decode_as(_CompleteParams)
        reference = params.ref.name if params.ref.type == "ref/prompt" else params.ref.uri
        if reference in self.prompts or reference in self.templates:
            return self._complete(reference, params, request, context)
        if reference in self.resources:
            return self._result(request, context, completion_result([]))
        return None

    async def _complete(
        self, reference: str, params: _CompleteParams, request: Request, context: Context
    ) -> Response:
        completer = self.completers.get((reference, params.argument.name))

        async def run(bound: Context) -> dict[str, Any]:
            if completer is None:
                return completion_result([])
            return completion_result(
                await completer(params.argument.value, params.context.arguments, bound)
            )

        result = await self._guarded(request, context, run, f"completing {reference[:200]}")
        return self._result(request, context, result)

    def subscribe(self, request: Request, context: Context) -> Answer | None:
        """Accept a subscription to a resource of this provider."""
        if self._find_resource(request.uri) is None:
            return None
        return Response(id=request.id, result=EMPTY_RESULT)

    def _find_resource(self, uri: str) -> _Found | None:
        resource = self.resources.get(uri)
        if resource is not None:
            return resource, uri, {}
        for template in self.templates.values():
            variables = template.pattern.match(uri)
            if variables is not None:
                return template, uri, variables
        return None

    async def _guarded(
        self,
        request: Request,
        context: Context,
        run: Callable[[Context], Awaitable[dict[str, Any]]],
        what: str,
    ) -> dict[str, Any]:
        """Run a function that is not a tool: its failure becomes an error response."""
        try:
            return await self._rounded(request, context, run)
        except MissingCapability as missing:
            if request.version.modern:
                raise
            raise McpError(f"{what}: {missing}") from None  # its code is modern-only
        except McpError:
            raise
        except (PorticoError, WrongReturn) as error:
            raise McpError(f"{what}: {error}") from error
        except Exception as error:
            self._report(request, error)
            raise McpError(f"{what} failed: {_describe(error)}") from error

    async def _rounded(
        self,
        request: Request,
        context: Context,
        run: Callable[[Context], Awaitable[dict[str, Any]]],
    ) -> dict[str, Any]:
        """Run one round: to the end, or to the first question without an answer."""
        asker: ReplayAsker | DirectAsker
        if request.version.modern and context.task is None:
            bound, asker = await self._rounds.begin(request, context)
        else:
            bound = context.bound(request, None, {})
            bound._asker = asker = DirectAsker(bound, request.version)
        bound._lifespan = self.lifespan
        bound._values = self._session_values
        try:
            if context.deadline is None and (self.call_timeout_s is None or context.task):
                return await run(bound)
            return await self._with_timeout(run(bound), context)
        except Suspended as suspended:
            assert isinstance(asker, ReplayAsker)
            return await self._rounds.suspend(request, bound, asker, suspended)
        finally:
            bound.release()

    def _session_values(self, bound: Context) -> "SessionValues":
        """Return the values that this provider keeps for the session of a call."""
        from portico.core.state.client_sessions import SESSIONS

        return (self.sessions or SESSIONS).of(bound.request, bound, self.session_scope)

    async def _with_timeout(
        self, running: Awaitable[dict[str, Any]], context: Context
    ) -> dict[str, Any]:
        """Await a handler until the request's deadline or our own timeout, whichever is first; our
        own does not end a call that has become a task."""
        loop = asyncio.get_running_loop()
        timer: asyncio.TimerHandle | None = None
        try:
            async with asyncio.timeout_at(context.deadline) as limit:
                if self.call_timeout_s is not None:

                    def expire() -> None:
                        if context.task is None:
                            limit.reschedule(loop.time())

                    timer = loop.call_later(self.call_timeout_s, expire)
                return await running
        except TimeoutError:
            if not limit.expired():
                raise  # the handler's own timeout
            raise ToolError("the call timed out and was cancelled") from None
        finally:
            if timer is not None:
                timer.cancel()

    def _result(self, request: Request, context: Context, result: dict[str, Any]) -> Response:
        if request.version.modern:
            result = identified(result, context.server_info)
        try:
            return Response(id=request.id, result=encode(result))
        except (TypeError, ValueError, msgspec.MsgspecError) as error:
            raise McpError(f"the result has no JSON form: {error}") from None


def _check_output(schema: Schema, value: Any, wrapped: bool) -> None:
    """Raise WrongReturn for a result that does not match the output schema, before fields that the
    version lacks are removed."""
    full = tool_result(value, structured=True, wrapped=wrapped, version=Version.V2026_07_28)
    problems = schema.problems(full.get("structuredContent"))
    if problems and not full.get("isError"):
        why = schema.describe(problems)
        raise WrongReturn(f"the result does not match the output schema: {why}")


def _describe(error: BaseException) -> str:
    """Return the type and message of an exception, such as `KeyError: 'city'`; only the message
    of a PorticoError."""
    if isinstance(error, ExceptionGroup):
        return "; ".join(map(_describe, leaves(error)))
    kind = type(error).__name__
    try:
        message = str(error).encode(errors="backslashreplace").decode()
    except Exception:  # noqa: BLE001  (a foreign `__str__` may raise anything)
        return kind
    if isinstance(error, PorticoError | NotAnException):
        return message or kind
    return f"{kind}: {message}" if message else kind


def listed_entries(entries: Mapping[str, Registered]) -> Listed:
    return Listed(items=tuple(entry.raw for entry in entries.values()), keys=tuple(entries))


_ANSWERS: dict[str, Callable[[FunctionProvider, Request, Context], Answer | None]] = {
    "resources/read": FunctionProvider.read_resource,
    "prompts/get": FunctionProvider.get_prompt,
    "completion/complete": FunctionProvider.complete,
    "resources/subscribe": FunctionProvider.subscribe,
    "resources/unsubscribe": FunctionProvider.subscribe,
}
