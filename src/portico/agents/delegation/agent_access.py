"""The access of delegated agents to Portico's own tools: one grant per running task."""

import asyncio
import sys
from collections.abc import Callable, Collection
from contextlib import suppress
from hashlib import blake2b
from hmac import compare_digest
from typing import TYPE_CHECKING, Protocol
from weakref import WeakKeyDictionary

from msgspec import Struct
from msgspec.structs import replace

from portico.agents.delegation.granted_endpoint import GrantedEndpoint
from portico.agents.delegation.nested_questions import NestedQuestions
from portico.agents.delegation.stored_delegation import StoredDelegation
from portico.agents.turns.delegation import ProvidedServer
from portico.core.config.agents_schema import AgentEntry
from portico.core.model.types import Endpoint
from portico.core.state.store_error import StoreError
from portico.edge.windows.task_window import SOCKET_VARIABLE, TOKEN_VARIABLE
from portico.library.tasks.store.record import AGENT_PREFIX, TaskRecord, agent_principal
from portico.library.tasks.worker.work import Work
from portico.upstream.auth.token import new_task_token
from portico.upstream.process.family import Family

if TYPE_CHECKING:
    from portico.library.tasks.store.store import TaskStore

SERVER_NAME = "portico"
LISTED_S = 5.0
"""How long a prompt waits until its agent has listed the tools."""
_COMMAND = ("-P", "-m", "portico.commands.cli.task_access")
# -P: modules in the agent's folder must not be imported.
_NO_ROUTE = (
    "the agent has no access to Portico's tools: this gateway has neither HTTP nor a control socket"
)


class Delegator(Struct, frozen=True, kw_only=True):
    """The running task whose agent makes a request."""

    depth: int
    """The number of delegations that led to it."""
    left: int
    """How many further delegations may follow."""
    folder: str
    """The folder of the task."""


_ENDED = Delegator(depth=0, left=0, folder="")
"""For the agent of a task that has ended."""
FindParent = Callable[[str], Delegator | None]
"""Returns the task whose agent has this principal; None if it is not the principal of an agent."""


class AccessGateway(Protocol):
    """The gateway whose tools agents get, and the places where they reach it."""

    url: str
    """The URL for HTTP clients; empty if it has none."""
    control_socket: str
    """The path of its control socket; empty if it has none."""

    def full_endpoint(self, folder: str) -> Endpoint:
        """Return the endpoint that lists all tools, for clients in a folder."""
        ...


class TaskGrant:
    """The access of one task's agent."""

    def __init__(
        self,
        access: "AgentAccess",
        agent: str,
        task: Delegator,
        server: ProvidedServer | None,
        end: GrantedEndpoint,
        questions: NestedQuestions,
    ) -> None:
        """`server` is for the agent; None without a right to tools, or without a way to them."""
        self._access = access
        self._agent = agent
        self.task = task
        self.server = server
        self.endpoint = end
        self.questions = questions

    def bind(self, family: Family) -> None:
        """Limit all windows below the agent to this access, also those that are connected."""
        self._access.below(family).adopt(self.endpoint)

    async def until_listed(self) -> None:
        """Wait until the agent has listed the tools; not again for an agent that never did in
        time."""
        late, listed = self._access.late, self.endpoint.listed
        if listed.is_set():
            late.discard(self._agent)
        if self._agent in late:
            return
        try:
            async with asyncio.timeout(LISTED_S):
                await listed.wait()
        except TimeoutError:
            late.add(self._agent)
            raise TimeoutError(f"the agent did not list its tools within {LISTED_S:g} s") from None

    async def end(self) -> None:
        """End the access, and cancel the unfinished tasks that the agent started."""
        await self._access.end(self)


class AgentAccess:
    """The grants of all running tasks of this process."""

    def __init__(
        self,
        gateway: AccessGateway,
        store: "Callable[[], TaskStore]",
        reserved: Collection[str] = (),
    ) -> None:
        """`reserved` are the names of tools that no pattern matches."""
        self._gateway = gateway
        self._store = store
        self._reserved = reserved
        self.late: set[str] = set()
        """The agents that did not list their tools in time."""
        self._by_digest: dict[bytes, tuple[str, GrantedEndpoint]] = {}
        self._by_principal: dict[str, TaskGrant] = {}
        self._by_family: WeakKeyDictionary[Family, GrantedEndpoint] = WeakKeyDictionary()

    async def grant(
        self, work: Work, entry: AgentEntry, stored: StoredDelegation, folder: str
    ) -> TaskGrant:
        """Grant an agent access for a task in this folder, perhaps to no tools at all."""
        left = max(entry.max_depth - stored.depth, 0)
        if stored.left is not None:
            left = min(left, stored.left)
        token = new_task_token()
        server = None
        if entry.kind == "acp" and (entry.tools or left):
            server = self._provided(token)
            if server is None:
                await work.record(_NO_ROUTE)
        endpoint = GrantedEndpoint(
            self._gateway.full_endpoint(folder),
            agent_principal(work.id),
            entry.tools,
            delegates=left > 0,
            reserved=self._reserved,
        )
        task = Delegator(depth=stored.depth, left=left, folder=folder)
        if server is not None:
            server = replace(server, lists=endpoint.lists)
        questions = NestedQuestions(work, self._store, entry.id)
        made = TaskGrant(self, entry.id, task, server, endpoint, questions)
        self._by_digest[_digest(token)] = (token, endpoint)
        self._by_principal[endpoint.principal] = made
        return made

    def find(self, token: str) -> GrantedEndpoint | None:
        """Return the endpoint of a running task by its token; None if there is none.

        The lookup is by a digest, whose time reveals nothing about the tokens.
        """
        token = token.encode("ascii", "replace").decode()
        known = self._by_digest.get(_digest(token))
        return known[1] if known is not None and compare_digest(known[0], token) else None

    def of_window(self, token: str | None, family: Family | None) -> GrantedEndpoint | None:
        """Return the endpoint of a window by its token, or by the agent below which it runs; None
        if the task does not run, or is another agent's."""
        own = None if family is None else self.below(family)
        found = own if token is None else self.find(str(token))
        if found is None or found.has_ended:
            return None
        return found if own is None or own.principal == found.principal else None

    def below(self, family: Family) -> GrantedEndpoint:
        """Return the endpoint of all windows below an agent, which has no tools before a task."""
        if family not in self._by_family:
            full = self._gateway.full_endpoint("")
            nothing = GrantedEndpoint(full, AGENT_PREFIX, (), delegates=False)
            self._by_family[family] = nothing
        return self._by_family[family]

    def created(self, task: TaskRecord) -> None:
        """Pass on the questions of a task that an agent started."""
        grant = self._by_principal.get(task.principal)
        if grant is not None:
            grant.questions.follow(task)

    @property
    def folders(self) -> list[str]:
        """The folders of the tasks whose agents have access now."""
        return [grant.task.folder for grant in self._by_principal.values()]

    def parent(self, principal: str) -> Delegator | None:
        """Return the task whose agent has this principal; None if it is not that of an agent."""
        if not principal.startswith(AGENT_PREFIX):
            return None
        known = self._by_principal.get(principal)
        return _ENDED if known is None else known.task

    async def end(self, grant: TaskGrant) -> None:
        """End a grant, and cancel the unfinished tasks that its agent started."""
        endpoint = grant.endpoint
        if endpoint.has_ended:
            return
        self._by_principal.pop(endpoint.principal, None)
        kept = {key: value for key, value in self._by_digest.items() if value[1] is not endpoint}
        self._by_digest = kept
        endpoint.end()
        await grant.questions.close()
        with suppress(StoreError):  # a child that is left finds out when it starts
            await cancel_tasks_of(self._store(), endpoint.principal)

    def _provided(self, token: str) -> ProvidedServer | None:
        url, path = self._gateway.url, self._gateway.control_socket
        if not url and not path:
            return None
        return ProvidedServer(
            name=SERVER_NAME,
            url=url,
            headers={"Authorization": f"Bearer {token}"} if url else {},
            argv=(sys.executable, *_COMMAND) if path else (),
            env={TOKEN_VARIABLE: token, SOCKET_VARIABLE: path} if path else {},
        )


async def cancel_tasks_of(store: "TaskStore", principal: str) -> None:
    """Cancel all unfinished tasks of a principal; raises StoreError."""
    cursor: str | None = None
    while True:
        page = await store.page(principal, cursor=cursor)
        for task in [] if page is None else page.tasks:
            if not task.is_finished:
                await store.cancel(principal, task.id)
        cursor = None if page is None else page.cursor
        if cursor is None:
            return


def _digest(token: str) -> bytes:
    return blake2b(token.encode(), digest_size=32).digest()
