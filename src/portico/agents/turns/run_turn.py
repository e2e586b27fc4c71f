"""Runs one turn of an agent of any kind."""

from portico.agents.turns.acp_connection import AcpConnection
from portico.agents.turns.command_turn import CommandTurn
from portico.agents.turns.delegation import AgentLaunch, AgentPrompt, DelegationPort, TurnOutcome
from portico.agents.turns.line_turn import LineTurn
from portico.agents.turns.turn import AcpTurn
from portico.core.state.background import Background

Turn = AcpTurn | CommandTurn | LineTurn


def turn_of(
    launch: AgentLaunch,
    prompt: AgentPrompt,
    port: DelegationPort,
    process: AcpConnection | None = None,
    endings: Background | None = None,
) -> Turn:
    """Return a turn to `run` once; its `outcome` is the result so far, also of a cancelled one.

    `process` is a warm one of this agent. The process of a finished turn ends among the `endings`,
    if they are given, so that the result does not wait for it.
    """
    if launch.kind == "acp":
        return AcpTurn(launch, prompt, port, process, endings=endings)
    kind = CommandTurn if launch.kind == "cli" else LineTurn
    return kind(launch, prompt, port)


async def run_turn(
    launch: AgentLaunch,
    prompt: AgentPrompt,
    port: DelegationPort,
    process: AcpConnection | None = None,
    endings: Background | None = None,
) -> TurnOutcome:
    """Run one turn, on a warm process if there is one.

    Raises TargetError if the turn could not begin: nothing has been done then. A failure after the
    prompt is an outcome with `is_error`. Cancelling it ends the agent before it returns.
    """
    return await turn_of(launch, prompt, port, process, endings).run()
