"""Checks whether an agent starts, completes the handshake and is logged in."""

import asyncio
import shutil

from msgspec.structs import replace

from portico.agents.turns.acp_connection import AcpConnection, AgentProfile
from portico.agents.turns.delegation import AgentLaunch
from portico.agents.turns.failures import AgentFailed
from portico.core.model.errors import McpError
from portico.upstream.rpc.rpc_error import one_line


async def probe(launch: AgentLaunch, folder: str) -> AgentProfile:
    """Open a session without a prompt, and return the agent's description of itself.

    Raises LoginRequired if a login is missing, TargetError for every other reason why it cannot be
    used. Of an agent that does not speak ACP, only the command is looked up, and the profile has
    its `found_command`.
    """
    if launch.kind != "acp":
        return _command_profile(launch)
    connection = AcpConnection(launch, folder)
    await connection.open()
    try:
        async with asyncio.timeout(launch.timeouts.start):
            logged_in = await connection.logged_in()
            id = (await connection.new_session(folder, []))["sessionId"]
            if launch.mode:
                await connection.set_mode(id, launch.mode)
            await connection.close_session(id)
    except TimeoutError:
        raise connection.start_timeout() from None
    except McpError as error:
        why = f"{launch.name} did not open a session: {one_line(error)} ({error.code})"
        raise AgentFailed(why, kind="refused", server=launch.name) from None
    finally:
        await connection.close()
    return replace(connection.profile, logged_in=logged_in)


def _command_profile(launch: AgentLaunch) -> AgentProfile:
    program = launch.argv[0]
    found = shutil.which(program, path=launch.variables().get("PATH"))
    if found is None:
        why = (
            f"{launch.name} cannot start: there is no command {program!r}; check its name and PATH"
        )
        raise AgentFailed(why, kind="start", server=launch.name)
    return AgentProfile(name=launch.name, found_command=found)
