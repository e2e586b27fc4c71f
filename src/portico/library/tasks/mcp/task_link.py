"""The link in front of the user's links that makes calls tasks."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress

from portico.core.model.context import Context
from portico.core.model.errors import METHOD_NOT_FOUND, McpError
from portico.core.model.message import Request, Response
from portico.core.model.task_control import CreatedTask, TaskRequest
from portico.core.model.types import Answer, Handler, LinkedEndpoint
from portico.core.model.version import Version
from portico.core.protocol.codec import encode
from portico.core.protocol.eras import members
from portico.core.protocol.tasks import TASK, TASKS, task_id
from portico.core.state.store_error import StoreError
from portico.library.tasks.mcp import task_wire
from portico.library.tasks.mcp.client_call import ClientCall
from portico.library.tasks.mcp.promotion import BudgetTimer, Run
from portico.library.tasks.mcp.stored_results import StoredResults
from portico.library.tasks.mcp.task_call import (
    DelegationControl,
    SubmittedCall,
    kept_call,
    stored_call,
)
from portico.library.tasks.mcp.task_changes import finished_task
from portico.library.tasks.mcp.task_host import FindTasks, stored
from portico.library.tasks.mcp.task_plan import ClientSupport, Facts, Plan, Step, plan
from portico.library.tasks.mcp.task_policy import PromotionTerms, TaskPolicy, declares_tasks
from portico.library.tasks.mcp.task_requests import TaskMethod, TaskRequests
from portico.library.tasks.store.record import ID_PREFIX, TaskRecord, new_key
from portico.library.tasks.worker.work import RunOutcome, Work
from portico.upstream.rpc.pending_request import MAX_TASK_S

_SINCE = Version.V2025_11_25
_WAIT_S = 45.0
"""How long a client without tasks waits for a tool that runs only as a task."""
# Members of an enum are slow to look up.
_WITHOUT, _RUN, _FORWARD = ClientSupport.WITHOUT, Step.RUN, Step.FORWARD
Send = Callable[[bytes], Awaitable[None]]


class TaskLink:
    """The tasks of the clients of one endpoint: its link, and the source of its notifications."""

    waits_for_catalog = True

    def __init__(
        self,
        host: FindTasks,
        at: str,
        policy: TaskPolicy,
        *,
        forwards: Callable[[Request, Context], Awaitable[Response]] | None = None,
        translates: Callable[[Request], bool] = lambda _: True,
    ) -> None:
        """`at` names the endpoint among those of the application. `forwards` sends requests to the
        only server, whose own tasks pass unchanged, unless it `translates` between eras."""
        self.host = host
        self.at = at
        self.policy = policy
        self.forwards = forwards
        self._translates = translates
        self.next: Handler = _not_ready
        self.behind: LinkedEndpoint | None = None
        self.timer = BudgetTimer()
        self.sees_every_call = False
        """True if calls may become tasks that their clients do not mention."""
        results = StoredResults(host, at, shares_links=policy.shares_links)
        self._requests = TaskRequests(host, results)
        self.creating: set[str] = set()
        """Tools whose servers have created tasks: a modern server does not declare them."""

    def __call__(self, next: Handler) -> Handler:
        """Return the link in front of the next handler."""
        self.next = next
        policy = self.policy

        def handle(request: Request, context: Context) -> Answer:
            if request.method == "tools/call":
                return self._call(request, context, policy.terms(request))
            return self._about(request, context)

        return handle

    # Calls.

    def _call(self, request: Request, context: Context, terms: PromotionTerms) -> Answer:
        """Make a call a task if its client requests that and its tool supports it."""
        in_task, modern = context.task_control is not None, request.version.modern
        word = request.meta.client_capabilities if modern else request.params
        # Most clients mention no tasks; a key may be escaped.
        mentions = word.find(TASKS if modern else TASK) >= 0 or word.find(b"\\") >= 0
        wish = self._wish(request) if mentions and not in_task else None
        client = _WITHOUT
        if wish is not None:
            client = ClientSupport.ABLE if modern else ClientSupport.EXPLICIT
        asked = request.asked
        facts = Facts(
            in_task,
            terms.mode.support,
            terms.mode.is_required,
            client,
            not asked and self.policy.is_declared and request.version >= _SINCE,
            terms.budget_s is not None,
            terms.may_answer_executed_with_text if asked else terms.may_answer_with_text,
            self.forwards is not None and not self._translates(request),
        )
        found = plan(facts)
        params = request.params
        if not in_task and (params.find(TASK) >= 0 or params.find(b"\\u") >= 0):
            self._without_field(request, found)
        step = found.step
        if step is _RUN or step is _FORWARD:
            return self._run(request, context, found, wish, terms.budget_s)
        return self._other(request, context, step, wish, terms.budget_s)

    def _without_field(self, request: Request, found: Plan) -> None:
        """Remove the wish for a task from a call that its own server must not see as one."""
        is_plain = found.step is Step.PLAIN and self.forwards is not None
        if not (is_plain or found.by_server or found.step in (Step.LOOK_UP, Step.FORWARD)):
            _drop_task_field(request)

    def _other(
        self,
        request: Request,
        context: Context,
        step: Step,
        wish: TaskRequest | None,
        budget_s: float | None,
    ) -> Answer:
        """Make, store or refuse a call that is not watched."""
        match step:
            case Step.LOOK_UP:
                return self._call_when_known(request, context)
            case Step.REQUIRE:
                if request.version.modern:
                    raise task_wire.missing_extension()
                why = f"{request.name} runs only as a task; send `task` in params"
                raise McpError(why, METHOD_NOT_FOUND)
            case Step.FORBID:
                why = f"{request.name} does not run as a task; call it without `task` in params"
                raise McpError(why, METHOD_NOT_FOUND)
            case Step.OWN:
                return self._run_own(request, context, wish)
            case Step.WAIT:
                return self._run_required(request, context, budget_s or _WAIT_S)
            case Step.SUBMIT:
                assert wish is not None
                return self._submit(request, context, wish)
        return self.next(request, context)

    async def _call_when_known(self, request: Request, context: Context) -> Response:
        """Call a tool once its server's tools are known; no task if there is no such tool."""
        policy = self.policy
        if not await policy.ready(request):
            _drop_task_field(request)
            return await self.next(request, context)
        return await self._call(request, context, policy.terms(request))

    def _wish(self, request: Request) -> TaskRequest | None:
        """Return the client's wish for a task, or its ability to have one."""
        if not self.policy.is_declared or request.version < _SINCE:
            return None
        if request.version.modern:
            return TaskRequest() if declares_tasks(request) else None
        if "task" not in members(request.params):
            return None
        ttl_s = task_wire.requested_ttl_s(request)
        return TaskRequest(None if ttl_s is None else ttl_s * 1000)

    async def _submit(self, request: Request, context: Context, wish: TaskRequest) -> Response:
        """Store a call, which a worker then makes."""
        host, input = self.host(), stored_call(self.at, request, context)
        submitted = host.worker.submit(
            context.owner, host.call_kind, input, _ttl_s(wish), place=self.place(request)
        )
        task = await stored(submitted)
        context.task_control = SubmittedCall(task)
        return self.created(request, context, task)

    async def _run_own(
        self, request: Request, context: Context, wish: TaskRequest | None
    ) -> Response:
        """Make a call whose handler stores its task, and may wait for it."""
        call = kept_call(self.at, request, context)
        context.task_control = own = DelegationControl(wish is not None, call)
        waiting = self.host().waiting
        response: Response | None = None
        try:
            response = await self.next(request, context)
        finally:
            own.end(response)
            if own.record is not None:
                waiting.pop(own.record.id, None)
        if own.record is None or wish is None:
            return response
        return self.created(request, context, own.record)

    def _run(
        self,
        request: Request,
        context: Context,
        found: Plan,
        wish: TaskRequest | None,
        budget_s: float | None,
    ) -> Answer:
        """Make a call that its server, its handler or a timeout may make a task."""
        if not found.by_handler:
            context.task_wish = wish
        call = ClientCall(self, request, context, found, wish, budget_s)
        if wish is None or (request.version.modern and request.name not in self.creating):
            return call.run()  # it only allows a task, and most tools create none
        return self._run_checked(call, found)

    async def _run_checked(self, call: ClientCall, found: Plan) -> Response:
        """Make a call that requires a place for its task."""
        request, context = call.request, call.context
        if found.by_server:
            await self._check_room(request, context)
        response = await call.run()
        is_there = call.record is not None or found.step is Step.FORWARD
        if is_there or request.version.modern or response.error:
            return response
        return await self._finished(call, response)

    async def _check_room(self, request: Request, context: Context) -> None:
        """Refuse a call that its server makes a task, if its client has too many there."""
        await stored(self.host().worker.check_room(context.owner, self.place(request)))

    def place(self, request: Request) -> str:
        """Return whose limits hold for the task of a call."""
        return self.host().place(self.policy.called_server(request))

    async def _finished(self, call: ClientCall, response: Response) -> Response:
        """Store the result of a server that made no task: a legacy client that requested one must
        get one (2025-11-25, result retrieval)."""

        async def run(_: Work) -> RunOutcome:
            return task_wire.outcome_of(response, modern=False, passed=self.at)

        return call.answer(await stored(call.adopt(run)))

    async def finish(self, request: Request, context: Context, created: CreatedTask) -> Response:
        """Wait for a task with which a server answered a call that requested none, and return the
        result of the call; cancelled, end the task."""
        host, input = self.host(), self.remote_input(request, context, created)
        remote, store = host.remote, host.worker.store
        assert remote is not None

        async def run(work: Work) -> RunOutcome:
            return await remote.follow(input, work)

        # To the end, also if the client leaves: the server's task runs already.
        adopted = self.adopt_remote(input, context, created, run, created.ttl_s, new_key())
        task = await asyncio.shield(asyncio.ensure_future(adopted))
        try:
            ended = await finished_task(
                store, task.principal, task.id, MAX_TASK_S, or_question=False
            )
        except asyncio.CancelledError:
            with suppress(StoreError):  # it ends with its ttl
                await store.cancel(task.principal, task.id)
            raise
        if ended is None or not ended.is_finished:
            raise task_wire.unknown_task()  # it was removed meanwhile
        payload = await stored(store.result(ended))
        outcome = RunOutcome(ended.state, payload, ended.message)
        return task_wire.late_response(request, outcome, context.server_info)

    def remote_input(self, call: Request, context: Context, created: CreatedTask) -> bytes:
        """Return the input of the task that follows the one that a server has created."""
        from portico.library.tasks.mcp.remote_task import remote_input

        server, names = self.policy.server_of(context), self.policy.names_servers
        return remote_input(self.at, server, created, call, context, names_servers=names)

    async def adopt_remote(
        self,
        input: bytes,
        context: Context,
        created: CreatedTask,
        run: Run,
        ttl_s: float | None,
        key: str,
    ) -> TaskRecord:
        """Store the task that follows a server's; if that fails, cancel it there."""
        host, server = self.host(), self.policy.server_of(context)
        remote = host.remote
        assert remote is not None
        adopted = host.worker.adopt(
            context.owner,
            host.remote_kind,
            input,
            run,
            ttl_s,
            place=host.place(server),
            key=key,
            is_repeatable=remote.outlives(server),
        )
        try:
            return await stored(adopted)
        except McpError:
            remote.abandon(input, context.owner)
            raise

    async def _run_required(self, request: Request, context: Context, budget_s: float) -> Response:
        """Call a tool that runs only as a task for a client without tasks: wait for its result, and
        after a while explain how to get it."""
        await self._check_room(request, context)
        context.task_wish = wish = TaskRequest()
        found = Plan(Step.WAIT, by_server=True)
        call = ClientCall(self, request, context, found, wish, budget_s)
        if not request.version.modern:
            request.params = encode({**members(request.params), "task": {}})
        return await call.run()

    def created(self, request: Request, context: Context, task: TaskRecord) -> Response:
        """Return a new task to its client."""
        endpoint = None if context.server_info else self.host().calls.find(self.at)
        if endpoint is not None:
            context.server_info = endpoint.identify(request, context)
        if context.session is not None and not request.version.modern:
            self._requests.tell_session(task, request, context.session)
        return task_wire.created_response(request, task, time.time(), context.server_info)

    # Requests about tasks.

    def _about(self, request: Request, context: Context) -> Answer:
        method = self._requests.method(request)
        if method is None or not self.policy.is_declared or request.version < _SINCE:
            if self.forwards is None:
                return self._about_when_known(method, request, context)
            return self.next(request, context)
        if self.forwards is None or self._translates(request):
            return method(self._requests, request, context)
        if not task_id(request.params).startswith(ID_PREFIX):
            return self.next(request, context)
        return self._ours_or_theirs(method, request, context)

    async def _about_when_known(
        self, method: TaskMethod | None, request: Request, context: Context
    ) -> Response:
        """Answer once it is known whether the server has tasks. It never gets the request: it would
        answer for the tasks of all its clients."""
        if method is not None and request.version >= _SINCE:
            await self.policy.ready(request)  # the request names no tool that could be there
            if self.policy.is_declared:
                return await method(self._requests, request, context)
        raise McpError(f"method not found: {request.method[:200]}", METHOD_NOT_FOUND)

    async def _ours_or_theirs(
        self, method: TaskMethod, request: Request, context: Context
    ) -> Response:
        """Answer for a task of ours; the server may be a Portico too, with ids of the same form."""
        if await self._requests.visible([task_id(request.params)], request, context):
            return await method(self._requests, request, context)
        return await self.next(request, context)

    async def visible_tasks(
        self, ids: Sequence[str], request: Request, context: Context
    ) -> list[str]:
        """Return those of the tasks that a listener can follow; raises McpError."""
        if not self.policy.is_declared:
            return []
        if not declares_tasks(request):
            raise task_wire.missing_extension()
        if self.forwards is not None:
            return list(ids)  # unknown ones have no notifications
        return await self._requests.visible(ids, request, context)

    @asynccontextmanager
    async def following(
        self, ids: Sequence[str], request: Request, context: Context, send: Send
    ) -> AsyncGenerator[None, None]:
        """Send a listener the params of a notification for every state of these tasks."""
        mine = [id for id in ids if id.startswith(ID_PREFIX)]
        ours = await self._requests.visible(mine, request, context) if mine else []
        others = [id for id in ids if id not in ours]
        async with AsyncExitStack() as stack:
            if ours:
                following = self._requests.following(ours, context, send)
                await stack.enter_async_context(following)
            if others and self.forwards is not None:
                from portico.library.tasks.mcp.task_listening import listening

                listened = listening(self.forwards, others, request, send)
                await stack.enter_async_context(listened)
            yield

    async def close(self) -> None:
        """Stop sending notifications."""
        await self._requests.close()


def _ttl_s(wish: TaskRequest) -> float | None:
    return None if wish.ttl_ms is None else wish.ttl_ms / 1000


def _drop_task_field(request: Request) -> None:
    """Remove the wish for a task from a call."""
    fields = members(request.params)
    if fields.pop("task", None) is not None:
        request.params = encode(fields)


def _not_ready(request: Request, context: Context) -> Answer:
    raise McpError("the endpoint is not ready")
