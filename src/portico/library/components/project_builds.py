"""Builds projects again when their sources change, while the last good build keeps serving."""

import asyncio
import os
import shlex
import sys
from collections.abc import Collection, Mapping, Sequence

from portico.core.state.report import report
from portico.library.components.classify import ComponentError
from portico.library.components.project import Project

BUILD_S = 300.0
_TAIL_LINES = 20
_MAX_LINE = 500


class ProjectBuilds:
    """The projects that a person named, by the names of their components."""

    def __init__(self, projects: Mapping[str, Project]) -> None:
        self._projects = {name: one for name, one in projects.items() if one.build}
        self.is_building = False
        """True while a build may be writing its component."""

    def files(self) -> list[str]:
        """Return the sources to watch."""
        return [path for one in self._projects.values() for path in one.source_files()]

    async def build(self, changed: Collection[str]) -> None:
        """Build the projects of changed sources; raises ComponentError if one fails."""
        for name, project in self._projects.items():
            if any(path in changed for path in project.source_files()):
                report(f"building {name}: {shlex.join(project.build)}")
                self.is_building = True
                try:
                    await run_build(project)
                finally:
                    self.is_building = False


async def run_build(project: Project) -> None:
    """Run the build of a project in its folder; raises ComponentError with its last lines."""
    here = os.path.dirname(sys.executable)  # compilers are installed beside Portico
    path = os.pathsep.join((here, os.environ.get("PATH", os.defpath)))
    try:
        process = await asyncio.create_subprocess_exec(
            *project.build,
            cwd=project.folder,
            env={**os.environ, "PATH": path},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        why = error.strerror or error
        raise ComponentError(f"{project.folder}: the build cannot start: {why}") from None
    try:
        async with asyncio.timeout(BUILD_S):
            output, _ = await process.communicate()
    except TimeoutError:
        raise ComponentError(f"{project.folder}: the build took over {BUILD_S:g} s") from None
    finally:
        if process.returncode is None:
            _kill(process.pid)
            await process.wait()
    if process.returncode:
        shown = _tail(output)
        raise ComponentError(
            f"{project.folder}: the build failed with code {process.returncode}:\n{shown}"
        )


def _kill(pid: int) -> None:
    import signal
    from contextlib import suppress

    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _tail(output: bytes) -> str:
    lines: Sequence[str] = output.decode(errors="replace").rstrip().splitlines()
    return "\n".join(f"  {line[:_MAX_LINE]}" for line in lines[-_TAIL_LINES:])
