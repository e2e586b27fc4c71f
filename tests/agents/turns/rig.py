"""Delegations to the scripted agent: how it is launched, and a port that remembers."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from portico.agents.turns.delegation import (
    AgentAnswer,
    AgentLaunch,
    AgentPrompt,
    AgentQuestion,
    StopGrace,
)
from portico.core.config.agents_schema import AgentTimeouts

FAKE = Path(__file__).parent / "fake_agent.py"
WAIT_S = 60.0
"""How long anything may take before it counts as a hang."""

QUICK = StopGrace(cancel_s=5.0, stdin_s=0.3, term_s=0.3)
"""For tests of agents that do not end by themselves."""
TIMEOUTS = AgentTimeouts(start=WAIT_S, idle=WAIT_S, hard=2 * WAIT_S)
"""For tests in which none of them passes."""


def launch(*steps: Any, script: Mapping[str, Any] | None = None, **options: Any) -> AgentLaunch:
    """A launch of the scripted agent."""
    whole = {"prompt": list(steps)} if steps else {}
    return AgentLaunch(
        name="fake",
        **{"grace": QUICK, "timeouts": TIMEOUTS, **options},
        argv=(sys.executable, "-I", "-S", str(FAKE), json.dumps({**whole, **(script or {})})),
    )


def prompt(folder: Path, text: str = "do it", **options: Any) -> AgentPrompt:
    """A prompt for a task in a folder."""
    return AgentPrompt(text=text, cwd=str(folder), **options)


class FakePort:
    """Keeps all progress and events, and answers questions as it is told."""

    def __init__(self, answer: AgentAnswer | None = None, *, hangs: bool = False) -> None:
        self.shown: list[str] = []
        self.events: list[str] = []
        self.questions: list[AgentQuestion] = []
        self.asked = asyncio.Event()
        self.withdrawn = asyncio.Event()
        self._answer = answer
        self._hangs = hangs

    async def progress(self, text: str) -> None:
        self.shown.append(text)

    async def record(self, text: str) -> None:
        self.events.append(text)

    async def ask(self, question: AgentQuestion) -> AgentAnswer | None:
        self.questions.append(question)
        self.asked.set()
        if self._hangs:
            try:
                await asyncio.Event().wait()
            finally:
                self.withdrawn.set()
        return self._answer


def accept(option: str) -> AgentAnswer:
    """The answer that chooses a permission option."""
    return AgentAnswer("accept", {"option": option})


OPTIONS = [
    {"optionId": "always", "name": "Always allow", "kind": "allow_always"},
    {"optionId": "once", "name": "Allow", "kind": "allow_once"},
    {"optionId": "no", "name": "Reject", "kind": "reject_once"},
    {"optionId": "never", "name": "Always reject", "kind": "reject_always"},
]


def permission(kind: str = "edit", path: str = "", options: Any = None) -> dict[str, Any]:
    """A step that requests a permission, and says the outcome."""
    call: dict[str, Any] = {"toolCallId": "call-1", "title": f"{kind} it", "kind": kind}
    if path:
        call["locations"] = [{"path": path}]
    params = {"toolCall": call, "options": OPTIONS if options is None else options}
    return {"ask": "session/request_permission", "params": params}


def log_of(path: Path, side: str) -> list[dict[str, Any]]:
    """The messages of one side, as the scripted agent logged them."""
    entries = map(json.loads, path.read_text().splitlines())
    return [entry["message"] for entry in entries if entry["from"] == side]


def is_alive(pid: int) -> bool:
    """True if a process runs; False for one that only waits to be collected."""
    shown = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return shown.stdout.strip()[:1] not in ("", "Z")
