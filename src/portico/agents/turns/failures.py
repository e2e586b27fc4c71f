"""Why a delegation could not begin. Nothing has been done then, so another agent may be tried.

TargetError
└── AgentFailed               the agent did not start, or does not support what is needed
    ├── LoginRequired         a person has to log in first
    └── WrongAgentVersion     the agent speaks another version of ACP
"""

from collections.abc import Sequence
from typing import Any

from portico.agents.turns.lenient import fields, items, short, text, texts
from portico.core.model.errors import TargetError

AUTH_REQUIRED = -32000
"""ACP's code of an error that a login would avoid."""


class AgentFailed(TargetError):
    """An agent could not begin a task."""


class WrongAgentVersion(AgentFailed):
    """The agent speaks another version of ACP."""

    def __init__(self, agent: str, version: Any, ours: int) -> None:
        shown = short(str(version), 40) or "none"
        super().__init__(
            f"{agent} speaks version {shown} of ACP, and Portico version {ours}: "
            "install a version of the agent that supports it",
            kind="version",
            server=agent,
        )


class LoginRequired(AgentFailed):
    """The agent needs a login, by the command that is named."""

    def __init__(self, agent: str, command: str, methods: Sequence[str] = ()) -> None:
        as_usual = f"log in to {agent} as you would without Portico"
        todo = f"run `{command}` and log in" if command else as_usual
        offered = f" (it offers: {', '.join(methods)})" if methods else ""
        super().__init__(
            f"{agent} needs a login: {todo}, then try again{offered}", kind="login", server=agent
        )
        self.command = command
        self.methods = tuple(methods)


def login_command(argv: Sequence[str], methods: Sequence[dict[str, Any]], known: str) -> str:
    """Return the command with which to log in: the known one, else the agent's; empty if unknown.

    The command that starts the agent is not one: with other arguments it may do anything.
    """
    if known:
        return known
    from shlex import join

    for method in methods:
        for one in (method, fields(method.get("_meta"))):  # some agents put it into the meta
            if text(one.get("type")) == "terminal":
                return join([argv[0], *texts(items(one.get("args")))])
    return ""


def auth_methods(value: Any) -> list[dict[str, Any]]:
    """Return the authentication methods of a response or of an error's data."""
    return [fields(item) for item in items(value) if fields(item)][:20]


def method_names(methods: Sequence[dict[str, Any]]) -> list[str]:
    """Return the names of authentication methods, for people."""
    names = (short(method.get("name") or method.get("id"), 60) for method in methods)
    return [name for name in names if name]
