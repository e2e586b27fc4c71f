"""A contender's processes: started, watched by their own clocks, and ended."""

import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.workload import ROOT, encode, tools

MB = 1024 * 1024


@dataclass(frozen=True)
class Memory:
    """Resident bytes of a process tree: as counted by all, and with shared pages shared out."""

    rss: int
    pss: int


class Workspace:
    """A folder for one run: the files of tools, logs, and Portico's own state."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="portico-bench-")
        self.path = Path(self._folder.name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    @property
    def home(self) -> Path:
        """Where Portico keeps its state during the run."""
        return self.path / "home"

    def tools(self, count: int) -> Path:
        """Write a file `{"tools": [...]}` with this number of tools."""
        file = self.path / f"tools-{count}.json"
        if not file.exists():
            file.write_bytes(encode({"tools": tools(count)}))
        return file

    def environment(self, count: int) -> dict[str, str]:
        """The environment of a contender's process."""
        # Compiled modules are kept wherever people use it, so that only the first start makes them.
        inherited = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        return {
            **inherited,
            "BENCH_TOOLS": str(self.tools(count)),
            "PORTICO_HOME": str(self.home),
        }


class Process:
    """One running contender."""

    def __init__(
        self, argv: Sequence[str], workspace: Workspace, tools: int, *, pipes: bool = False
    ) -> None:
        self._control = workspace.home / "state" / "control"
        self._has_owner = "serve" in argv and not {"--alone", "--http"} & set(argv)
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  (closed in stop)
        self.popen = subprocess.Popen(
            argv,
            cwd=ROOT,
            env=workspace.environment(tools),
            stdin=subprocess.PIPE if pipes else subprocess.DEVNULL,
            stdout=subprocess.PIPE if pipes else self._log,
            stderr=self._log,
            bufsize=0,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def cpu_s(self) -> float:
        """User and system seconds of the process and those it started."""
        return sum(_clock(pid) for pid in self._tree())

    def faults(self) -> int:
        """How often the kernel had to hand them a page, from no disk."""
        return sum(_faults(pid) for pid in self._tree())

    def memory(self) -> Memory:
        """The memory of the process and its descendants."""
        return memory_of(self._tree())

    def everyone(self) -> list[int]:
        """The process and all that descend from it, and so for the owner of a window's gateway."""
        return Process._tree(self)

    def complaint(self) -> str:
        """The last thing it wrote to stderr, for an error message."""
        # The child writes where this file's own position is, so it must not move.
        lines = os.pread(self._log.fileno(), MB, 0).decode(errors="replace").split("\n")
        return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "no reason")

    def stop(self) -> None:
        """End it; a contender that will not go is killed."""
        for stream in (self.popen.stdin, self.popen.stdout):
            if stream is not None:
                stream.close()
        self.popen.terminate()
        try:
            self.popen.wait(5)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()
        self._log.close()

    def _tree(self) -> list[int]:
        return tree_of([self.popen.pid, *self._owner()])

    def _owner(self) -> list[int]:
        """The process that has the gateway, which no window descends from."""
        found = [int(path.stem) for path in self._control.glob("*.sock")] if self._has_owner else []
        return [pid for pid in found if Path(f"/proc/{pid}").exists()]


def tree_of(pids: Sequence[int]) -> list[int]:
    """These processes and all that descend from them."""
    found = list(pids)
    for pid in found:  # grows while it is walked
        with suppress(OSError):  # it has ended meanwhile
            for task in Path(f"/proc/{pid}/task").glob("*/children"):
                found += map(int, task.read_text(encoding="ascii").split())
    return found


def memory_of(pids: Sequence[int]) -> Memory:
    """The memory of these processes together."""
    found = [_memory(pid) for pid in pids]
    return Memory(sum(m.rss for m in found), sum(m.pss for m in found))


def _clock(pid: int) -> float:
    # The kernel's clock of another process: see CPUCLOCK_SCHED in posix-timers.
    return time.clock_gettime((~pid << 3) | 2)


def _faults(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return int(fields[7])  # minflt in proc(5), by its position after the name


def _memory(pid: int) -> Memory:
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8")
    return Memory(_kilobytes(status, "VmRSS:"), _kilobytes(rollup, "Pss:"))


def _kilobytes(text: str, field: str) -> int:
    for line in text.splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    return 0
