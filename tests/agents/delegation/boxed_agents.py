"""Scripted agents in bubblewrap, as `docs/use/agents.md` recommends it: they can write only to the
worktrees and to the repository.

Anything that changes outside these two was done by Portico: no agent could reach it.
"""

import asyncio
import shutil
import tomllib
from pathlib import Path

from msgspec.structs import replace

from portico.agents.delegation.worktree_folder import WORKTREES
from portico.core.config.agents_schema import AgentEntry
from portico.library.tasks.store.record import TaskRecord
from tests.agents.worktrees.repositories import delegations, repository, worker_entry
from tests.docs.pages import blocks
from tests.support.shared import unavailable


class Box:
    """A repository, a state folder, and a folder of the user that no agent can write to."""

    def __init__(self, folder: Path) -> None:
        if shutil.which("bwrap") is None:
            unavailable("bwrap, of bubblewrap, is not there")
        self.state = folder / "home" / "state"
        self.repo = repository(folder / "project", a__txt="one\n", b__txt="two\n", c__txt="three\n")
        self.outside = folder / "outside"
        self.outside.mkdir()
        (self.outside / "secret").write_text("secret\n")
        (self.outside / "inner").mkdir(mode=0o755)
        (self.outside / "inner" / "kept").write_text("kept\n")
        self.proof = self.outside / "proof"
        """A file that exists if a program of the agent ran outside its box."""

    def agent(self, command: str) -> AgentEntry:
        """An agent that runs a shell command."""
        plain = worker_entry("boxed", {"shell": command}, {"say": "done"})
        (advice,) = (block.text for block in blocks("docs/use/agents.md") if "bwrap" in block.text)
        places = {"/home/me/.local/state/portico": self.state, "/home/me/project": self.repo}
        for shown, real in places.items():
            advice = advice.replace(shown, str(real))
        entry = tomllib.loads(advice)["agents"][0]
        box = tuple(entry["args"][: -len(("my-agent", "--acp"))])
        return replace(plain, command=entry["command"], args=(*box, plain.command, *plain.args))

    def work(self, command: str, follows: TaskRecord | None = None) -> TaskRecord:
        """A finished task whose agent has run a command; `$evil` is one that leaves the proof."""
        script = f'evil="touch {self.proof}"; {command}'

        async def run() -> TaskRecord:
            async with delegations(self.state, self.agent(script)) as work:
                task, result = await work.run("boxed", self.repo, follows)
                assert not task.is_error, result.result
                return task

        return asyncio.run(run())

    def untouched(self) -> None:
        """Fail if anything changed in the folder that the agent could not write to."""
        assert not self.proof.exists(), "a program of the agent ran outside its box"
        assert {path.name for path in self.outside.iterdir()} == {"secret", "inner"}
        assert (self.outside / "secret").read_text() == "secret\n"
        assert [path.name for path in (self.outside / "inner").iterdir()] == ["kept"]
        assert (self.outside / "inner").stat().st_mode & 0o777 == 0o755
        assert (self.outside / "inner" / "kept").read_text() == "kept\n"

    def worktree(self, task: TaskRecord) -> Path:
        """The folder in which a task worked."""
        return self.state / WORKTREES / task.id / "project"
