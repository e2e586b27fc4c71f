"""Draws docs/pictures/agent.svg: a client whose model calls a tool, and an agent that asks.

Qwen Code is real, as the client and as the agent. Its model is a script, so that the picture stays
the same.

.venv/bin/python -m tools.agent_picture
"""

import asyncio
import os
import sys
import tempfile
from pathlib import Path

from tests.agents.delegation.delegations import wrote
from tests.agents.delegation.qwen import qwen_table
from tests.support.model_server import ModelServer, calls, model_server, says
from tests.support.tmux import Tmux, tmux
from tests.wrap.faults import until
from tools.picture import COLUMNS, ROOT, cut, drawn

TARGET = ROOT / "docs" / "pictures" / "agent.svg"
PROGRAMS = (
    Path(sys.executable).parent,
    ROOT / ".tools" / "bin",
    ROOT / ".tools" / "node_modules" / ".bin",
    ROOT / ".agents" / "node_modules" / ".bin",
)
SCRIPT = {
    "Oslo": [
        calls("mcp__portico__time__get_current_time", timezone="Europe/Oslo"),
        says("Oslo is on Central European Time."),
    ],
    "tests": [
        calls("run_shell_command", command="python -m unittest"),
        says("One test fails: ", "add(1, 2) returns 1 instead of 3."),
    ],
}
FAULTY = """
import unittest


def add(a, b):
    return a


class TestAdd(unittest.TestCase):
    def test_add(self):
        self.assertEqual(add(1, 2), 3)
"""
WAIT_S = 60.0
PROMPT, CHOICE = "$", "  >"
TYPED = (
    ("portico servers add time mcp-server-time", PROMPT),
    ("portico install qwen --yes | grep -v backup", PROMPT),
    ('qwen --yolo "What time is it in Oslo?" 2>/dev/null', PROMPT),
    ("portico logs -n 1", PROMPT),
    ('portico delegate --type testing "Run the tests."', CHOICE),
    ("yes", PROMPT),
)
"""The lines, and the last line of what each shows."""


async def main() -> None:
    """Run the commands in a terminal, and draw what it shows."""
    with tempfile.TemporaryDirectory() as folder:
        async with model_server(SCRIPT) as model:
            screen = await asyncio.to_thread(_run, Path(folder), model)
    own, usual = f"{Path(sys.executable).parent}/", "~/.local/bin/"
    screen = screen.replace(f"{folder}/", "~/").replace(own, usual)
    lines = [cut(line) for line in screen.rstrip().splitlines()]
    TARGET.write_text(drawn(lines), encoding="utf-8")
    print("\n".join(lines), TARGET.relative_to(ROOT), sep="\n")


def _run(folder: Path, model: ModelServer) -> str:
    work = folder / "project"
    work.mkdir()
    (work / "test_add.py").write_text(FAULTY)
    table = qwen_table(folder, model)
    config = folder / ".config" / "portico" / "portico.toml"
    config.parent.mkdir(parents=True)
    wrote(config, {"qwen": {**table, "pool": {"max": 0}}})
    environ = {
        **table["env"],
        "HOME": str(folder),
        "PATH": os.pathsep.join([*map(str, PROGRAMS), os.environ["PATH"]]),
        "PS1": "$ ",
    }
    with tmux(folder, work, environ) as terminal:
        terminal.run("resize-window", "-x", str(COLUMNS), "-y", "60")
        _prompt(terminal)
        for line, last in TYPED:
            terminal.type(line)
            screen = _until_last(terminal, last, after=line)
        terminal.type("portico stop")
    return screen


def _prompt(terminal: Tmux) -> None:
    """Begin with an empty screen, and the prompt of a user."""
    terminal.type("PS1='$ '; clear")
    _until_last(terminal, PROMPT)


def _until_last(terminal: Tmux, last: str, after: str = "") -> str:
    """Wait until the last line is this, somewhere after a typed one; return the screen before."""
    before = ""

    def is_shown() -> bool:
        nonlocal before
        before, _, shown = terminal.run("capture-pane", "-p", "-J").rstrip().rpartition("\n")
        return shown == last and after in before

    assert until(is_shown, WAIT_S), f"{before}\n{last!r} is not shown"
    return before


if __name__ == "__main__":
    asyncio.run(main())
