"""A mirror of an agent's worktree: folders of our own, with hard links to the agent's files.

Git works with paths, and an agent that still runs can replace any folder in its worktree by a link
while git reads it. An agent cannot reach the mirror.
"""

import os
import shutil
import stat
import time
from collections.abc import Callable, Collection
from contextlib import suppress

from portico.agents.worktrees.worktree_record import WorktreeError
from portico.core.state import files
from portico.core.state.held_folder import HeldFolder

FilterIgnored = Callable[[list[str]], Collection[str]]
"""Returns those of some folders that git ignores."""
_MIRROR_S = 300.0
_MAX_PATH = 2048
"""The length of the longest path: git cannot use any that the system does not open."""


class WorktreeMirror:
    """A copy of a worktree's folders, without its `.git` and without folders that git ignores."""

    def __init__(self, path: str, tracked: Collection[str], submodules: Collection[str]) -> None:
        """`tracked` are the names of all files that git knows."""
        self.path = path
        self.files: set[str] = set()
        self.repositories: list[str] = []
        """Folders with a repository of their own, which no patch can hold."""
        self.has_ignored = False
        """True if a folder was left out because git ignores it."""
        self._submodules = frozenset(submodules)
        self._known = {above for name in tracked for above in _above(name)}

    def fill(self, source: HeldFolder, ignored: FilterIgnored) -> None:
        """Mirror everything, level by level; raises WorktreeError or OSError."""
        until, level = time.monotonic() + _MIRROR_S, [""]
        while level:
            found: list[str] = []
            for folder in level:
                found += self._fill(source, folder)
                if time.monotonic() > until:
                    raise WorktreeError(f"its files cannot be listed within {_MIRROR_S:g} s")
            if any(len(folder) > _MAX_PATH for folder in found):
                raise WorktreeError(f"a path has more than {_MAX_PATH} characters")
            left_out = set(ignored([folder for folder in found if folder not in self._known]))
            for folder in left_out:
                os.rmdir(os.path.join(self.path, folder))
            self.has_ignored = self.has_ignored or bool(left_out)
            level = [folder for folder in found if folder not in left_out]

    def _fill(self, source: HeldFolder, folder: str) -> list[str]:
        """Mirror the files in a folder; return the folders in it, which exist and are empty."""
        parts = folder.split("/") if folder else []
        with suppress(FileNotFoundError), source.below(*parts) as held:
            with os.scandir(held.fd) as listed:
                entries = {entry.name: entry for entry in listed}
            if folder in self._submodules:
                self.repositories += [folder] if entries else []
                return []
            if entries.pop(".git", None) is not None and folder:
                self.repositories.append(f"{folder}/")
                if folder not in self._known:
                    return []
            with HeldFolder.at(os.path.join(self.path, folder)) as target:
                made = {name: _mirrored(entry, held, target) for name, entry in entries.items()}
            paths = {os.path.join(folder, name): kind for name, kind in made.items()}
            self.files.update(path for path, kind in paths.items() if kind == "file")
            return [path for path, kind in paths.items() if kind == "folder"]
        return []


def _above(name: str) -> list[str]:
    """Return all folders above a file."""
    parts = name.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]


def _mirrored(entry: "os.DirEntry[str]", held: HeldFolder, target: HeldFolder) -> str:
    """Mirror one file, or make an empty folder for one; return which: `file`, `folder` or nothing,
    for a pipe and the like."""
    name = entry.name
    if entry.is_dir(follow_symlinks=False):
        os.mkdir(name, dir_fd=target.fd)
        return "folder"
    try:
        if entry.is_symlink():
            os.symlink(os.readlink(name, dir_fd=held.fd), name, dir_fd=target.fd)
            return "file"
        if entry.is_file(follow_symlinks=False):
            _link(name, held, target)
            return "file"
    except FileNotFoundError:
        pass  # it was there a moment ago
    return ""


def _link(name: str, held: HeldFolder, target: HeldFolder) -> None:
    try:
        os.link(name, name, src_dir_fd=held.fd, dst_dir_fd=target.fd, follow_symlinks=False)
    except FileNotFoundError:
        raise
    except OSError:  # another user's file, or a file system without hard links
        _copy(name, held, target)


def _copy(name: str, held: HeldFolder, target: HeldFolder) -> None:
    with os.fdopen(os.open(name, files.READ, dir_fd=held.fd), "rb") as source:
        status = os.fstat(source.fileno())
        if stat.S_ISREG(status.st_mode):
            with os.fdopen(target.create(name), "wb") as copy:
                shutil.copyfileobj(source, copy)
                os.fchmod(copy.fileno(), stat.S_IMODE(status.st_mode))
            times = (status.st_atime_ns, status.st_mtime_ns)
            os.utime(name, ns=times, dir_fd=target.fd)
