"""The check behind `portico agents test`: one agent started, without a prompt."""

import time
from typing import Any

from portico.agents.routing.availability import problem
from portico.agents.turns.delegation import launch_of
from portico.agents.turns.failures import LoginRequired
from portico.agents.turns.probe import probe
from portico.core.config.agents_schema import AgentEntry
from portico.core.model.errors import TargetError


async def check_agent(entry: AgentEntry, folder: str) -> dict[str, Any]:
    """Start an agent and open a session in a folder; return its state, or its `error`.

    `logged_in` stays None for an agent that does not report it.
    """
    why, profile = problem(entry), None
    logged_in: bool | None = None
    began = time.monotonic()
    if not why:
        try:
            profile = await probe(launch_of(entry), folder)
            logged_in = profile.logged_in
        except TargetError as error:
            why = str(error)
            logged_in = False if isinstance(error, LoginRequired) else None
    shown = "" if profile is None else f"{profile.name} {profile.version}".strip()
    return {
        "id": entry.id,
        "ok": not why,
        "error": why,
        "started": profile is not None and not profile.found_command,
        "logged_in": logged_in,
        "agent": shown or entry.id,
        "command": "" if profile is None else profile.found_command,
        "took_s": round(time.monotonic() - began, 2),
        "notes": () if entry.known is None else entry.known.notes,
    }
