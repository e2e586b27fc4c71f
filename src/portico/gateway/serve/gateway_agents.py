"""The agents of a gateway: a member with their tools, and the runner of delegated tasks."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from portico.core.config.schema import Config
from portico.gateway.endpoints import metatool_definitions
from portico.gateway.endpoints.gateway_tasks import GatewayTasks
from portico.gateway.members.in_process_server import InProcessEntry
from portico.upstream.process.family import gateways_above

if TYPE_CHECKING:
    from portico.agents.delegation.agent_access import AccessGateway
    from portico.core.config.agents_schema import AgentsConfig

_NAMES = ("agents", "portico-agents")


class GatewayAgents:
    """The agents that the config names."""

    def __init__(
        self, config: "AgentsConfig", tasks: GatewayTasks, folder: str, gateway: "AccessGateway"
    ) -> None:
        """`folder` is the state folder; agents get the tools of `gateway`."""
        from portico.agents.delegation.agent_access import AgentAccess
        from portico.agents.delegation.agent_host import AgentHost
        from portico.agents.delegation.agent_text import shown_text
        from portico.agents.delegation.delegate_runner import DelegateRunner
        from portico.agents.delegation.delegate_tools import DelegateTools
        from portico.agents.delegation.stored_delegation import call_of
        from portico.agents.delegation.worktree_folder import WorktreeFolders
        from portico.agents.routing.quotas import quotas_in_folder
        from portico.library.tasks.mcp.task_host import LinkedRunner

        self.host: AgentHost = AgentHost(config, lambda: quotas_in_folder(folder), folder)
        self.access: AgentAccess = AgentAccess(
            gateway, lambda: tasks.host.worker.store, metatool_definitions.RESERVED
        )
        runner = DelegateRunner(
            self.host,
            access=self.access,
            worktrees=WorktreeFolders(folder),
            text=lambda stored, id: shown_text(folder, tasks.host, stored, id),
        )
        linked = LinkedRunner(runner, lambda: tasks.host, call_of)
        self.kind = tasks.add_kind("delegate", linked, self.host.slots.claimable)
        self._tools: DelegateTools = DelegateTools(
            self.host, lambda: tasks.host, self.kind, self.access.parent
        )

    def entry(self, config: Config) -> Mapping[str, InProcessEntry]:
        """Return the member with the agents' tools, by its name."""
        name = next(name for name in _NAMES if name not in config.entries)
        entry = InProcessEntry(
            name=name, server=self._tools.server(), title="Agents", is_builtin=True
        )
        return {name: entry}

    async def apply(self, config: "AgentsConfig") -> None:
        """Use a changed config."""
        await self.host.apply(config)

    async def close(self) -> None:
        """End all processes of agents."""
        await self.host.close()


def has_agents(config: Config) -> bool:
    """True if the config has an agent that is enabled. A gateway that an agent started has none:
    the gateway of that agent alone knows how far it may delegate."""
    agents = config.agents
    is_enabled = agents is not None and any(entry.enabled for entry in agents.entries.values())
    return is_enabled and not gateways_above()
