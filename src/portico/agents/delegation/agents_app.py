"""The configured agents as a server of their own: `portico run --agents`."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from portico.agents.delegation.agent_host import AgentHost
from portico.agents.delegation.agent_text import shown_text
from portico.agents.delegation.delegate_runner import DelegateRunner
from portico.agents.delegation.delegate_tools import DelegateTools
from portico.agents.delegation.stored_delegation import call_of
from portico.agents.delegation.worktree_folder import WorktreeFolders
from portico.agents.routing.quotas import quotas_in_folder
from portico.core.config.agents_schema import AgentsConfig
from portico.core.model.errors import McpError
from portico.core.model.types import Link
from portico.library.chain.endpoint import ChainEndpoint
from portico.library.tasks.mcp.task_host import LinkedRunner, TaskHost
from portico.library.tasks.mcp.task_tools import TaskTools

_KIND = "delegate@agents"


class AgentsApp:
    """An endpoint with the agents' tools and those for tasks."""

    failure: McpError | None = None

    def __init__(self, config: AgentsConfig, folder: str, links: Sequence[Link] = ()) -> None:
        """`folder` keeps tasks, quotas and worktrees. Create it inside a running event loop."""
        self.stop = asyncio.Event()
        self._host = AgentHost(config, lambda: quotas_in_folder(folder), folder)
        tools = DelegateTools(self._host, self._tasks, _KIND)
        self.server = tools.server(tasks=folder)
        self.server.include(TaskTools(self._tasks, is_listed=True))
        self.endpoint: ChainEndpoint = self.server.endpoint(links)
        runner = DelegateRunner(
            self._host,
            worktrees=WorktreeFolders(folder),
            text=lambda stored, id: shown_text(folder, self._tasks(), stored, id),
        )
        linked = LinkedRunner(runner, self._tasks, call_of)
        self._tasks().worker.register(_KIND, linked, self._host.slots.claimable)

    def _tasks(self) -> TaskHost:
        return self.server.task_host

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None, None]:
        """Start the agents that are kept warm, and continue stored tasks; at the end, end all."""
        self._host.start()
        try:
            async with self.server.running():
                yield
        finally:
            await self._host.close()
