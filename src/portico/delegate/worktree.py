"""One git worktree, in which an agent works on a task: its changes, and its end.

Everything here waits for git; call it in a thread.
"""

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from tempfile import TemporaryDirectory
from typing import IO

from msgspec import Struct

from portico.delegate.git_command import GitError, GitFolder
from portico.model.errors import PorticoError

CHECKOUT_S = 600.0
"""How long the checkout of a repository may take."""
_GITLINK = b"160000"


class WorktreeError(PorticoError):
    """A task cannot work in a worktree, or its changes cannot be read or collected."""


class WorktreeRecord(Struct, frozen=True, kw_only=True):
    """A worktree as it is stored beside its folder."""

    id: str
    """The task for which it was made."""
    tasks: tuple[str, ...]
    """All tasks that worked in it."""
    top: str
    """The user's folder of the repository."""
    common: str
    """The repository itself."""
    path: str
    branch: str
    base: str
    """The commit from which the work began."""
    git_dir: str = ""
    """Its own data in the repository; empty until it was checked out."""


class WorktreeState(Struct, frozen=True):
    """The changes in a worktree since the commit that it began with."""

    files: tuple[str, ...]
    """Changed, new and deleted ones, and both names of those that were moved."""
    repositories: tuple[str, ...]
    """Folders with a repository of their own, which no patch can hold."""
    has_commits: bool
    has_ignored: bool
    """True if there are files that git ignores."""

    @property
    def is_work(self) -> bool:
        """True if there is anything to collect."""
        return bool(self.files or self.repositories or self.has_commits)


class Worktree:
    """A worktree that was checked out."""

    def __init__(self, folder: str, record: WorktreeRecord) -> None:
        """`folder` contains the worktree, and everything about it."""
        self.record = record
        self._folder = folder
        self._git = GitFolder(record.path, record.git_dir)

    def state(self) -> WorktreeState:
        """Return what has changed; raises WorktreeError."""
        with self._explained(), self._index(is_complete=False) as (index, repositories):
            named = plain_diff("--name-only", "--no-renames", "-z", self.record.base, "--")
            ignored = ("ls-files", "-o", "-i", "--exclude-standard", "--directory", "-z")
            return WorktreeState(
                files=tuple(sorted(map(shown_path, zeros(self._git.run(*named, index=index))))),
                repositories=tuple(sorted(map(shown_path, repositories))),
                has_commits=self.head() != self.record.base,
                has_ignored=bool(self._git.run(*ignored)),
            )

    def write_patch(self, file: IO[bytes], *, is_binary: bool = True) -> None:
        """Write all changes as a patch; raises WorktreeError."""
        form = ("--binary", "--full-index") if is_binary else ()
        with self._explained(), self._index(is_complete=False) as (index, _):
            words = plain_diff("-M", *form, self.record.base, "--")
            self._git.run(*words, index=index, output=file)

    def tree(self) -> str:
        """Store all files in the repository, and return the id of their tree."""
        with self._explained(), self._index(is_complete=True) as (index, _):
            return self._git.run("write-tree", index=index).decode().strip()

    def head(self) -> str:
        """Return the commit that is checked out; raises GitError."""
        return self._git.line("rev-parse", "--verify", "HEAD^{commit}")

    @property
    def repository(self) -> GitFolder:
        """The repository without a worktree."""
        return GitFolder(self.record.common)

    def remove(self, *, is_forced: bool, keeps_branch: bool = False) -> None:
        """Remove the worktree and its branch. Git refuses to remove one with changes unless
        `is_forced`; raises WorktreeError."""
        if is_forced:
            self._remove_forced()
        else:
            with self._explained():
                self.repository.run("worktree", "remove", self.record.path)
        if not keeps_branch:
            with suppress(GitError):  # the user may have checked it out
                self.repository.run("branch", "-D", self.record.branch)
        remove_tree(self._folder)

    def _remove_forced(self) -> None:
        try:
            self.repository.run("worktree", "remove", "--force", "--force", self.record.path)
        except GitError:  # it is damaged
            self._remove_files()

    def _remove_files(self) -> None:
        """Remove the files and git's own data about them, without git."""
        remove_tree(self.record.path)
        own = os.path.realpath(self.record.git_dir)
        if os.path.dirname(own) == os.path.join(self.record.common, "worktrees"):
            remove_tree(own)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        record = self.record
        for folder in (record.common, record.path, record.git_dir):
            if not os.path.isdir(folder):
                raise WorktreeError(
                    f"the worktree {record.path} of {record.top} is damaged: {folder} is missing; "
                    "copy the files that you need, then discard it"
                )
        try:
            yield
        except GitError as error:
            raise WorktreeError(f"{error} (in the worktree {record.path})") from error

    @contextmanager
    def _index(self, *, is_complete: bool) -> Iterator[tuple[str, list[bytes]]]:
        """An index with all files of the worktree, for as long as it is needed, and the folders
        that are repositories of their own. Only a complete one has the new contents."""
        with TemporaryDirectory(prefix="index-", dir=self._folder) as folder:
            index = os.path.join(folder, "index")
            try:
                # With its time: git reads files again that changed when the index was written.
                shutil.copy2(os.path.join(self.record.git_dir, "index"), index)
            except FileNotFoundError:
                self._git.run("read-tree", self.record.base, index=index)
            listed = self._git.run("ls-files", "-o", "--exclude-standard", "-z", index=index)
            new = zeros(listed)
            files = [name for name in new if not name.endswith(b"/")]
            if is_complete:
                self._git.run("add", "-u", index=index)
            if files:
                self._add(files, index, is_complete)
            inner = [name for name in new if name.endswith(b"/")]
            yield index, [*inner, *self._open_submodules(index)]

    def _add(self, names: list[bytes], index: str, is_complete: bool) -> None:
        how = () if is_complete else ("-N",)
        source = ("--pathspec-from-file=-", "--pathspec-file-nul")
        # Names are not patterns.
        literal = {"GIT_LITERAL_PATHSPECS": "1"}
        listed = b"\0".join(names)
        self._git.run("add", *how, *source, input=listed, index=index, variables=literal)

    def _open_submodules(self, index: str) -> list[bytes]:
        """The submodules that were checked out in the worktree."""
        entries = zeros(self._git.run("ls-files", "-s", "-z", index=index))
        names = [entry.partition(b"\t")[2] for entry in entries if entry.startswith(_GITLINK)]
        top = os.fsencode(self.record.path)
        return [name for name in names if os.path.lexists(os.path.join(top, name, b".git"))]


_PLAIN = ("--no-color", "--no-ext-diff", "--no-textconv", "--ignore-submodules=all")
"""Options of `git diff` that make its output independent of settings."""


def zeros(output: bytes) -> list[bytes]:
    """Return the parts of an output that are separated by zeros."""
    return [part for part in output.split(b"\0") if part]


def shown_path(name: bytes) -> str:
    """Return a path as text, also if it is not UTF-8."""
    return name.decode(errors="backslashreplace")


def plain_diff(*words: str) -> tuple[str, ...]:
    """Return a `git diff` whose output does not depend on settings."""
    return ("diff", *_PLAIN, *words)


def remove_tree(folder: str) -> None:
    """Remove a folder, also one with folders that are read-only; raises WorktreeError."""
    with suppress(OSError):
        shutil.rmtree(folder)
    if not os.path.lexists(folder):
        return
    try:
        for inner, _, _ in os.walk(folder):
            os.chmod(inner, stat.S_IRWXU)
        shutil.rmtree(folder)
    except OSError as error:
        raise WorktreeError(f"cannot remove {folder}: {error.strerror}") from error
