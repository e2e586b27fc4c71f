"""The link in front of an endpoint's providers that makes calls tasks."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from copy import copy
from typing import NamedTuple

from portico.model.context import Context
from portico.model.errors import METHOD_NOT_FOUND, McpError
from portico.model.message import Request, Response
from portico.model.tasking import CreatedTask, TaskWish
from portico.model.types import Answer, Handler
from portico.model.version import Version
from portico.protocol.codec import encode, may_mention
from portico.protocol.eras import members
from portico.protocol.result_fields import identified, noted_result
from portico.protocol.tasks import TASK, task_id
from portico.providers import task_wire
from portico.providers.promotion import PromotableCall
from portico.providers.task_call import OwnTask, stored_call, with_key
from portico.providers.task_changes import finished_task
from portico.providers.task_host import FindTasks, stored
from portico.providers.task_mode import NO_TASKS, TaskMode
from portico.providers.task_plan import Facts, Plan, Step, TaskClient, plan
from portico.providers.task_policy import TaskPolicy, declares_tasks
from portico.providers.task_requests import TaskMethod, TaskRequests
from portico.state.store_error import StoreError
from portico.tasks.record import ID_PREFIX, TaskRecord, new_key
from portico.tasks.work import TaskOutcome, Work
from portico.upstream.pending_request import MAX_TASK_S

_SINCE = Version.V2025_11_25
_WAIT_S = 45.0
"""How long a client without tasks waits for a tool that runs only as a task."""
Send = Callable[[bytes], Awaitable[None]]


class _Sent(NamedTuple):
    """A call that may become a task, as its client sent it: the chain changes the request."""

    request: Request
    key: str
    """The idempotency key of its task."""
    ttl_s: float | None
    """How long its client requires the task to be kept."""


class TaskEndpoint:
    """The tasks of the clients of one endpoint: its link, and the source of its notifications."""

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
        self._host = host
        self._at = at
        self._policy = policy
        self._forwards = forwards
        self._translates = translates
        self._next: Handler = _not_ready
        self.is_attentive = False
        """True if calls may become tasks that their clients do not mention."""
        self._requests = TaskRequests(host)
        self._creating: set[str] = set()
        """Tools whose servers have created tasks: a modern server does not declare them."""

    def __call__(self, next: Handler) -> Handler:
        """Return the link in front of the next handler."""
        self._next = next
        policy = self._policy

        def handle(request: Request, context: Context) -> Answer:
            if request.method == "tools/call":
                mode = policy.mode(request) or NO_TASKS
                return self._call(request, context, mode, policy.budget_s(request))
            return self._about(request, context)

        return handle

    @property
    def handler(self) -> Handler:
        """The chain behind the link, which makes the calls of tasks."""
        return self._next

    # Calls.

    def _call(
        self, request: Request, context: Context, mode: TaskMode, budget_s: float | None
    ) -> Answer:
        """Make a call a task if its client requests that and its tool supports it."""
        wish = None if context.tasking is not None else self._wish(request)
        found = plan(self._facts(request, context, mode, budget_s, wish))
        match found.step:
            case Step.PLAIN:
                if context.tasking is None and self._forwards is None:
                    _drop_task_field(request)
                return self._next(request, context)
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
                _drop_task_field(request)
                return self._run_own(request, context, wish)
            case Step.WAIT:
                _drop_task_field(request)
                return self._run_required(request, context, budget_s or _WAIT_S)
            case Step.SUBMIT:
                assert wish is not None
                _drop_task_field(request)
                return self._submit(request, context, wish)
        if not found.by_server and found.step is Step.RUN:
            _drop_task_field(request)
        return self._run(request, context, found, wish, budget_s)

    def _facts(
        self,
        request: Request,
        context: Context,
        mode: TaskMode,
        budget_s: float | None,
        wish: TaskWish | None,
    ) -> Facts:
        """Return all that decides about a call."""
        client = TaskClient.WITHOUT
        if wish is not None:
            client = TaskClient.ABLE if request.version.modern else TaskClient.EXPLICIT
        return Facts(
            in_task=context.tasking is not None,
            tool=mode.support,
            is_required=mode.is_required,
            client=client,
            is_bound=self._policy.is_declared and request.version >= _SINCE and not request.asked,
            has_budget=budget_s is not None,
            explains=wish is None and self._policy.explains(request),
            passes=self._passes(request),
        )

    async def _call_when_known(self, request: Request, context: Context) -> Response:
        """Call a tool once its server's tools are known; no task if there is no such tool."""
        policy = self._policy
        if not await policy.ready(request):
            _drop_task_field(request)
            return await self._next(request, context)
        mode = policy.mode(request) or NO_TASKS
        return await self._call(request, context, mode, policy.budget_s(request))

    def _wish(self, request: Request) -> TaskWish | None:
        """Return the client's wish for a task, or its ability to have one."""
        if not self._policy.is_declared or request.version < _SINCE:
            return None
        if request.version.modern:
            return TaskWish() if declares_tasks(request) else None
        if not may_mention(request.params, TASK) or "task" not in members(request.params):
            return None
        ttl_s = task_wire.requested_ttl_s(request)
        return TaskWish(None if ttl_s is None else ttl_s * 1000)

    async def _submit(self, request: Request, context: Context, wish: TaskWish) -> Response:
        """Store a call, which a worker then makes."""
        host, input = self._host(), stored_call(self._at, request, context)
        submitted = host.worker.submit(
            context.owner, host.call_kind, input, _ttl_s(wish), place=self._place(request)
        )
        task = await stored(submitted)
        return self._created(request, context, task)

    async def _run_own(self, request: Request, context: Context, wish: TaskWish | None) -> Response:
        """Make a call whose handler stores its task."""
        context.tasking = own = OwnTask(is_wanted=wish is not None)
        response = await self._next(request, context)
        if own.record is None or wish is None:
            return response
        return self._created(request, context, own.record)

    async def _run(
        self,
        request: Request,
        context: Context,
        found: Plan,
        wish: TaskWish | None,
        budget_s: float | None,
    ) -> Response:
        """Make a call that its server, its handler or a timeout may make a task."""
        if not found.by_handler:
            context.task_wish = wish
        # A modern client only allows a task, and most tools create none.
        if found.by_server and (not request.version.modern or request.name in self._creating):
            await self._check_room(request, context)
        sent = _sent(request, wish, has_key=found.step is Step.RUN)
        if found.by_handler or found.by_time:
            promotable = self._promotable(request, context, sent)
            ended = await promotable.run(budget_s if found.by_time else None)
            if isinstance(ended, TaskRecord):
                if wish is None:
                    return _explained(request, context, ended, budget_s or 0.0)
                return self._created(request, context, ended)
        else:
            ended = await self._next(request, context)
        if context.created is not None:
            return await self._followed(request, context, ended, sent)
        if wish is None or request.version.modern or ended.error or found.step is Step.FORWARD:
            return ended
        return await self._finished(request, context, ended, sent)

    async def _check_room(self, request: Request, context: Context) -> None:
        """Refuse a call that its server makes a task, if its client has too many there."""
        await stored(self._host().worker.check_room(context.owner, self._place(request)))

    def _place(self, request: Request) -> str:
        """Return whose limits hold for the task of a call."""
        return self._host().place(self._policy.called_server(request))

    def _passes(self, request: Request) -> bool:
        """True if the tasks of the only server pass unchanged."""
        return self._forwards is not None and not self._translates(request)

    async def _finished(
        self, request: Request, context: Context, response: Response, sent: _Sent
    ) -> Response:
        """Store the result of a server that made no task: a legacy client that requested one must
        get one (2025-11-25, result retrieval)."""
        host, input = self._host(), stored_call(self._at, sent.request, context)

        async def run(_: Work) -> TaskOutcome:
            return task_wire.outcome_of(response, modern=False)

        adopted = host.worker.adopt(
            context.owner,
            host.call_kind,
            input,
            run,
            sent.ttl_s,
            place=self._place(sent.request),
            key=sent.key,
        )
        return self._created(request, context, await stored(adopted))

    def _promotable(self, request: Request, context: Context, sent: _Sent) -> PromotableCall:
        host, input = self._host(), stored_call(self._at, sent.request, context)

        async def adopt(run: Callable[[Work], Awaitable[TaskOutcome]]) -> TaskRecord:
            return await host.worker.adopt(
                context.owner,
                host.call_kind,
                input,
                run,
                sent.ttl_s,
                place=self._place(sent.request),
                key=sent.key,
            )

        async def conclude(work: Work, response: Response) -> TaskOutcome:
            if context.created is None or host.remote is None:
                return task_wire.outcome_of(response, modern=request.version.modern)
            # The server made a task of its own since.
            remote_input = self._remote_input(sent, context, context.created)
            return await host.remote.follow(remote_input, work)

        return PromotableCall(self._next, request, context, adopt, conclude)

    def _remote_input(self, sent: _Sent, context: Context, created: CreatedTask) -> bytes:
        """Return the input of the task that follows the one that a server has created."""
        from portico.providers.remote_task import remote_input

        server, names = self._policy.server_of(context), self._policy.names_servers
        return remote_input(self._at, server, created, sent.request, context, names_servers=names)

    async def _followed(
        self, request: Request, context: Context, response: Response, sent: _Sent
    ) -> Response:
        """Store a task that a server has created, and follow it."""
        created = context.created
        assert created is not None
        if self._forwards is not None and created.modern == request.version.modern:
            return response  # the client follows it itself
        host, task = self._host(), await self._adopted(context, created, sent)
        token = request.meta.progress_token
        created.tell = lambda params: host.calls.tell_progress(task.id, token, params)
        return self._created(request, context, task)

    async def _adopted(self, context: Context, created: CreatedTask, sent: _Sent) -> TaskRecord:
        """Store a task that a server has created; if that fails, cancel it there."""
        host, input = self._host(), self._remote_input(sent, context, created)
        remote, server = host.remote, self._policy.server_of(context)
        assert remote is not None

        async def run(work: Work) -> TaskOutcome:
            return await remote.follow(input, work)

        async def store() -> TaskRecord:
            adopted = host.worker.adopt(
                context.owner,
                host.remote_kind,
                input,
                run,
                _shorter(sent.ttl_s, created.ttl_s),
                place=host.place(server),
                key=sent.key,
                is_repeatable=remote.outlives(server),
            )
            try:
                return await stored(adopted)
            except McpError:
                remote.abandon(input, context.owner)
                raise

        self._creating.add(sent.request.name)
        # To the end, also if the client leaves: the server's task runs already.
        return await asyncio.shield(asyncio.ensure_future(store()))

    async def finish(self, request: Request, context: Context, created: CreatedTask) -> Response:
        """Wait for a task with which a server answered a call that requested none, and return the
        result of the call; cancelled, end the task."""
        task = await self._adopted(context, created, _Sent(copy(request), new_key(), None))
        store = self._host().worker.store
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
        return task_wire.plain_outcome(request, ended, payload, context.server_info)

    async def _run_required(self, request: Request, context: Context, budget_s: float) -> Response:
        """Call a tool that runs only as a task for a client without tasks: wait for its result, and
        after a while explain how to get it."""
        await self._check_room(request, context)
        context.task_wish = wish = TaskWish()
        sent = _sent(request, wish, has_key=True)
        if not request.version.modern:
            request.params = encode({**members(request.params), "task": {}})
        response = await self._next(request, context)
        if context.created is None:
            return response
        task = await self._adopted(context, context.created, sent)
        store = self._host().worker.store
        ended = await finished_task(store, task.principal, task.id, budget_s)
        if ended is None or not ended.is_finished:
            return _explained(request, context, task, budget_s)
        payload = await stored(store.result(ended))
        return task_wire.plain_outcome(request, ended, payload, context.server_info)

    def _created(self, request: Request, context: Context, task: TaskRecord) -> Response:
        if context.session is not None and not request.version.modern:
            self._requests.tell_session(task, request, context.session)
        return task_wire.created_response(request, task, time.time(), context.server_info)

    # Requests about tasks.

    def _about(self, request: Request, context: Context) -> Answer:
        method = self._requests.method(request)
        if method is None or not self._policy.is_declared or request.version < _SINCE:
            if self._forwards is None:
                return self._about_when_known(method, request, context)
            return self._next(request, context)
        if self._forwards is None or self._translates(request):
            return method(self._requests, request, context)
        if not task_id(request.params).startswith(ID_PREFIX):
            return self._next(request, context)
        return self._ours_or_theirs(method, request, context)

    async def _about_when_known(
        self, method: TaskMethod | None, request: Request, context: Context
    ) -> Response:
        """Answer once it is known whether the server has tasks. It never gets the request: it would
        answer for the tasks of all its clients."""
        can_have_tasks = method is not None and request.version >= _SINCE
        if can_have_tasks and await self._policy.ready(request) and self._policy.is_declared:
            assert method is not None
            return await method(self._requests, request, context)
        raise McpError(f"method not found: {request.method[:200]}", METHOD_NOT_FOUND)

    async def _ours_or_theirs(
        self, method: TaskMethod, request: Request, context: Context
    ) -> Response:
        """Answer for a task of ours; the server may be a Portico too, with ids of the same form."""
        if await self._requests.visible([task_id(request.params)], context):
            return await method(self._requests, request, context)
        return await self._next(request, context)

    async def visible_tasks(
        self, ids: Sequence[str], request: Request, context: Context
    ) -> list[str]:
        """Return those of the tasks that a listener can follow; raises McpError."""
        if not self._policy.is_declared:
            return []
        if not declares_tasks(request):
            raise task_wire.missing_extension()
        if self._forwards is not None:
            return list(ids)  # unknown ones have no notifications
        return await self._requests.visible(ids, context)

    @asynccontextmanager
    async def following(
        self, ids: Sequence[str], request: Request, context: Context, send: Send
    ) -> AsyncGenerator[None, None]:
        """Send a listener the params of a notification for every state of these tasks."""
        mine = [id for id in ids if id.startswith(ID_PREFIX)]
        ours = await self._requests.visible(mine, context) if mine else []
        others = [id for id in ids if id not in ours]
        async with AsyncExitStack() as stack:
            if ours:
                following = self._requests.following(ours, context, send)
                await stack.enter_async_context(following)
            if others and self._forwards is not None:
                from portico.providers.task_listening import listening

                listened = listening(self._forwards, others, request, send)
                await stack.enter_async_context(listened)
            yield

    async def close(self) -> None:
        """Stop sending notifications."""
        await self._requests.close()


def _sent(request: Request, wish: TaskWish | None, *, has_key: bool) -> _Sent:
    """Return a call as it is now, and give it an idempotency key."""
    sent = _Sent(copy(request), new_key(), None if wish is None else _ttl_s(wish))
    if has_key:
        request.params = with_key(request.params, sent.key)
    return sent


def _ttl_s(wish: TaskWish) -> float | None:
    return None if wish.ttl_ms is None else wish.ttl_ms / 1000


def _shorter(first: float | None, second: float | None) -> float | None:
    """Return the shorter of two times; None sets no limit."""
    if first is None or second is None:
        return second if first is None else first
    return min(first, second)


def _drop_task_field(request: Request) -> None:
    """Remove the wish for a task from a call that its own server must not see as one."""
    if may_mention(request.params, TASK):
        fields = members(request.params)
        if fields.pop("task", None) is not None:
            request.params = encode(fields)


def _explained(request: Request, context: Context, task: TaskRecord, after_s: float) -> Response:
    """Return notes that explain how a client without tasks gets the result later."""
    notes = [
        f"{request.name} is still running after {after_s:g} s. It continues as task {task.id}.",
        f'Call task_status with {{"task_id": "{task.id}", "wait_s": 50}} for its result.',
    ]
    result = noted_result([], {"task_id": task.id, "status": task.word}, notes)
    if request.version < Version.V2025_06_18:
        result.pop("structuredContent")
    if request.version.modern:
        result = identified(result, context.server_info)
    return Response(id=request.id, result=encode(result))


def _not_ready(request: Request, context: Context) -> Answer:
    raise McpError("the endpoint is not ready")
