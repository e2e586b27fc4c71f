"""Real windows of one gateway, each in the folder of its own project."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from sys import executable
from typing import Any

from portico.edge.windows.control import send_command
from tests.serve.gateway import Entry, command, result_of, serve_command, text_in, written
from tests.serve.owners import owner_in, owners_in
from tests.serve.task_windows import TaskWindow
from tests.support.running import WAIT_S, initialize_params
from tests.support.shared import ROOT
from tests.wrap.faults import alive, descendants, portico_command, until

PLACED = str(ROOT / "tests" / "serve" / "servers" / "placed.py")
GONE_S = 8.0
"""How long anything may stay after the last window: the promise is 2 s."""


def placed(**more: Any) -> Entry:
    """The server that says where it runs."""
    return command([executable, PLACED], **more)


def at(folder: Path) -> Sequence[str]:
    """What runs a command of Portico in a folder."""
    steps = (
        "import os, runpy",
        f"os.chdir({str(folder)!r})",
        "runpy.run_module('portico', run_name='__main__')",
    )
    return ("-c", "; ".join(steps))


class ProjectWindow(TaskWindow):
    """A window in the folder of a project, its client introduced."""

    def __init__(
        self, projects: "Projects", folder: Path, *options: str, modern: bool, can_be_asked: bool
    ) -> None:
        serve = serve_command(projects.home, projects.config, "--expose", "all", *options)
        super().__init__(["env", "-C", str(folder), *serve], modern=modern)
        self._declared: dict[str, Any] = {"elicitation": {}} if can_be_asked else {}
        self.greet()

    def greet(self) -> None:
        """Introduce the client."""
        if not self.modern:
            hello = {**initialize_params("2025-11-25"), "capabilities": self._declared}
            self.ask("initialize", hello)
            self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def result(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """The result of a tool."""
        return result_of(self.answer_to(self.begin("tools/call", name=tool, arguments=arguments)))

    def text(self, tool: str, /, **arguments: Any) -> str:
        """The text of a tool's result."""
        return text_in(self.result(tool, **arguments))

    def where(self, server: str = "placed") -> tuple[Path, int]:
        """The folder and the process of the server that this window uses."""
        folder, _, pid = self.text(f"{server}__where").rpartition(" ")
        return Path(folder), int(pid)

    def tools(self) -> list[str]:
        """The names of all tools."""
        return [tool["name"] for tool in self.ask("tools/list")["result"]["tools"]]

    def submitted(self, tool: str, **arguments: Any) -> str:
        """Call a tool as a task; the id of the task."""
        more: dict[str, Any] = {} if self.modern else {"task": {}}
        return self.task_in(self.begin("tools/call", name=tool, arguments=arguments, **more))

    def leave(self) -> None:
        """End as a client does that closes its pipe."""
        self.close_input()
        self.process.wait(WAIT_S)


class Projects:
    """Folders of projects, and the one gateway of all windows in them."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.home = folder / "home"
        self.config = folder / "portico.toml"
        self._folder = folder
        self._stack = stack

    def configure(self, servers: dict[str, Entry], **tables: dict[str, Any]) -> None:
        """Write the config."""
        written(self.config, servers, **tables)

    def project(self, name: str, *files: str) -> Path:
        """The folder of a project, with these empty files."""
        made = self._folder / "projects" / name
        made.mkdir(parents=True, exist_ok=True)
        for file in files:
            (made / file).touch()
        return made

    def window(
        self, folder: Path, *options: str, modern: bool = False, can_be_asked: bool = False
    ) -> ProjectWindow:
        """One more window, in this folder."""
        window = ProjectWindow(self, folder, *options, modern=modern, can_be_asked=can_be_asked)
        return self._stack.enter_context(window)

    def portico(self, folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
        """A command of Portico for this config, given in a folder."""
        if words[0] != "tasks":
            words = (*words, "--config", str(self.config))
        return subprocess.run(
            portico_command(self.home, *words),
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )

    def owner(self) -> int:
        """The one process that has the gateway."""
        return owner_in(self.home / "state")

    def control(self, do: str, **more: Any) -> dict[str, Any]:
        """The owner's answer to a command."""
        control = str(self.home / "state" / "control")
        answer = send_command(control, f"{self.owner()}.sock", do, WAIT_S, **more)
        assert answer is not None
        return answer

    def status(self, server: str = "placed") -> dict[str, Any]:
        """How the owner says that a server is."""
        servers: list[dict[str, Any]] = self.control("status")["servers"]
        return next(one for one in servers if one["server"] == server)

    def folders_of_processes(self, mark: str = PLACED) -> list[Path]:
        """The folder of each process of a server, sorted."""
        found = []
        for pid in descendants(self.owner()):
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                if mark.encode() in words:
                    found.append(Path(f"/proc/{pid}/cwd").readlink())
        return sorted(found)


@contextmanager
def projects_in(folder: Path) -> Iterator[Projects]:
    """Projects in a folder; every process of their gateway must end with the last window."""
    with ExitStack() as stack:
        projects = Projects(folder, stack)
        yield projects
        owners = owners_in(projects.home / "state")
        kin = owners.union(*(descendants(pid) for pid in owners))
    until(lambda: not alive(kin), GONE_S)
    left = alive(kin)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert not left, "a process outlived the last window"
