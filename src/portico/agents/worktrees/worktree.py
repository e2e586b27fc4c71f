"""One git worktree, in which an agent works on a task: its changes, and its end.

Everything here waits for git; call it in a thread.
"""

import os
import shutil
import stat
from collections.abc import Container, Iterator
from contextlib import contextmanager, suppress
from tempfile import TemporaryDirectory
from typing import IO

from msgspec import Struct

from portico.agents.worktrees.git_command import GitError, GitFolder
from portico.agents.worktrees.private_git import PrivateGit
from portico.agents.worktrees.refs import delete_branch, head
from portico.agents.worktrees.repository import Repository
from portico.agents.worktrees.worktree_mirror import WorktreeMirror
from portico.agents.worktrees.worktree_record import WorktreeError, WorktreeRecord
from portico.core.state.held_folder import HeldFolder

_GITLINK = b"160000"


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


class _Changes(Struct, frozen=True):
    """The files of a worktree, in a mirror of it."""

    git: GitFolder
    """In the mirror."""
    index: str
    """With the files of the commit with which the work began."""
    names: list[bytes]
    """Of all files that changed."""
    mirror: WorktreeMirror


class Worktree:
    """A worktree that was checked out."""

    def __init__(self, folder: str, private: str, record: WorktreeRecord) -> None:
        """`folder` contains the worktrees of all tasks, in which agents write; `private` belongs
        to this one and to Portico."""
        self.record = record
        self._folder = folder
        self._private = private
        self.repository = Repository(record.top, record.common, record.common)
        self.git = PrivateGit(os.path.join(private, "git"), self.repository, record.base)

    @property
    def is_nested(self) -> bool:
        """True if the agent of another task delegated this one, from its own worktree."""
        return self.record.top.startswith(f"{self._folder}/")

    def state(self) -> WorktreeState:
        """Return what has changed; raises WorktreeError."""
        with self._changes() as changes:
            mirror, words = changes.mirror, ("ls-files", "-o", "-i", "--exclude-standard", "-z")
            inner = map(os.fsencode, mirror.repositories)
            ignored = mirror.has_ignored or bool(changes.git.run(*words, index=changes.index))
            return WorktreeState(
                files=tuple(sorted(map(shown_path, changes.names))),
                repositories=tuple(sorted(map(shown_path, inner))),
                has_commits=self.head() not in ("", self.record.base),
                has_ignored=ignored,
            )

    def write_patch(self, file: IO[bytes], *, is_binary: bool = True) -> None:
        """Write all changes as a patch; raises WorktreeError."""
        form = ("--binary", "--full-index") if is_binary else ()
        with self._changes() as changes:
            words = plain_diff("-M", *form, self.record.base, _tree(changes))
            changes.git.run(*words, output=file)

    def tree(self) -> str:
        """Store all files in our own git folder, and return the id of their tree."""
        with self._changes() as changes:
            return _tree(changes)

    def head(self) -> str:
        """Return the commit that is checked out; empty if that is not known."""
        return head(self.repository, self.record.git_dir)

    def held(self) -> HeldFolder:
        """Hold the folder of the worktree itself; raises WorktreeError if another one, or a link,
        is in its place."""
        record = self.record
        try:
            with HeldFolder.at(self._folder) as all, all.below(record.id) as above:
                found = above.inner(os.path.basename(record.path))
                own = (os.geteuid(), all.status.st_dev, record.inode)
        except FileNotFoundError:
            raise self._damaged(record.path) from None
        except NotADirectoryError:
            raise self._replaced("a link or a file") from None
        except OSError as error:
            raise WorktreeError(f"cannot open {record.path}: {error.strerror}") from error
        status = found.status
        if (status.st_uid, status.st_dev, status.st_ino) != own:
            os.close(found.fd)
            raise self._replaced("another folder")
        return found

    def remove(self, *, keeps_branch: bool = False) -> None:
        """Remove the worktree with its changes, and its branch; raises WorktreeError.

        A link in its place is removed, and not followed. Another folder stays.
        """
        record = self.record
        try:
            with suppress(FileNotFoundError), HeldFolder.at(self._folder) as all:
                self._check_removable(all)
                all.remove(record.id)
            with suppress(FileNotFoundError):
                self.repository.remove_worktree(record.id)
                if not keeps_branch:
                    delete_branch(self.repository, record.branch)
            shutil.rmtree(self._private)
        except OSError as error:
            raise WorktreeError(f"cannot remove {record.path}: {error.strerror}") from error

    def _check_removable(self, all: HeldFolder) -> None:
        record, name = self.record, os.path.basename(self.record.path)
        with suppress(FileNotFoundError, NotADirectoryError), all.opened_up(record.id) as own:
            found = os.stat(name, dir_fd=own.fd, follow_symlinks=False)
            if stat.S_ISDIR(found.st_mode) and found.st_ino != record.inode:
                raise self._replaced("another folder")

    def _replaced(self, what: str) -> WorktreeError:
        """Return the error of a worktree with something else in its place."""
        return WorktreeError(
            f"{what} is in the place of the worktree {self.record.path}: the agent has replaced "
            "it, and Portico does not read or change it"
        )

    def _damaged(self, missing: str) -> WorktreeError:
        record = self.record
        return WorktreeError(
            f"the worktree {record.path} of {record.top} is damaged: {missing} is missing; "
            "copy the files that you need, then discard it"
        )

    @contextmanager
    def _changes(self) -> Iterator[_Changes]:
        """All changes, for as long as they are needed; raises WorktreeError."""
        record = self.record
        for folder in (record.common, record.git_dir):
            if not os.path.isdir(folder):
                raise self._damaged(folder)
        try:
            with self.held() as held, TemporaryDirectory(dir=self._private) as folder:
                self.git.refresh()
                yield self._mirrored(held, folder)
        except GitError as error:
            raise WorktreeError(f"{error} (in the worktree {record.path})") from error
        except OSError as error:
            named = f"{error.filename}: " if error.filename else ""
            raise WorktreeError(f"cannot read {record.path}: {named}{error.strerror}") from error

    def _mirrored(self, held: HeldFolder, folder: str) -> _Changes:
        top, index = os.path.join(folder, "files"), os.path.join(folder, "index")
        os.mkdir(top)
        git = self.git.at(top)
        # With its time: git reads files again that changed when the index was written.
        shutil.copy2(self.git.index, index)
        entries = zeros(git.run("ls-files", "-s", "-z", index=index))
        known = {entry.partition(b"\t")[2] for entry in entries}
        submodules = {e.partition(b"\t")[2] for e in entries if e.startswith(_GITLINK)}
        added = [name for name in self._added(git, folder) if name not in known]
        tracked = map(os.fsdecode, (*known, *added))
        mirror = WorktreeMirror(top, {*tracked}, {*map(os.fsdecode, submodules)})
        mirror.fill(held, lambda folders: _ignored(git, folders))
        changed = plain_diff("--name-only", "--no-renames", "-z", "--")
        names = zeros(git.run(*changed, index=index))
        names += zeros(git.run("ls-files", "-o", "--exclude-standard", "-z", index=index))
        # An index can have any name in it, also one that leads out of the folder.
        names += [name for name in added if os.fsdecode(name) in mirror.files]
        return _Changes(git, index, sorted({*names} - submodules), mirror)

    def _added(self, git: GitFolder, folder: str) -> list[bytes]:
        """Return the names in the agent's own index: it may have added files that git ignores."""
        index = os.path.join(folder, "agents-index")
        try:
            data = self.repository.worktree_index(self.record.id)
            if not data:
                return []
            with open(index, "xb") as file:
                file.write(data)
            return zeros(git.run("ls-files", "-z", index=index))
        except (GitError, WorktreeError):  # a damaged index adds nothing
            return []


_PLAIN = ("--no-color", "--no-ext-diff", "--no-textconv", "--ignore-submodules=all")


def zeros(output: bytes) -> list[bytes]:
    """Return the parts of an output that are separated by zeros."""
    return [part for part in output.split(b"\0") if part]


def shown_path(name: bytes) -> str:
    """Return a path as text, also if it is not UTF-8."""
    return name.decode(errors="backslashreplace")


def plain_diff(*words: str) -> tuple[str, ...]:
    """Return a `git diff` that shows all changes, and runs nothing."""
    return ("diff", *_PLAIN, *words)


def update_index(git: GitFolder, index: str, names: list[bytes], files: Container[bytes]) -> None:
    """Update some names in an index: files are added, all other names are removed."""
    gone = [name for name in names if name not in files]
    for how, which in (
        (("--force-remove",), gone),
        (("--add", "--replace"), [name for name in names if name in files]),
    ):
        listed = b"".join(name + b"\0" for name in which)
        git.run("update-index", *how, "-z", "--stdin", input=listed, index=index)


def _tree(changes: _Changes) -> str:
    git, index, names = changes.git, changes.index, changes.names
    files = {os.fsencode(name) for name in changes.mirror.files}
    update_index(git, index, names, files)
    return git.run("write-tree", index=index).decode().strip()


def _ignored(git: GitFolder, folders: list[str]) -> set[str]:
    """Return the folders that git ignores, of those that are in a mirror."""
    if not folders:
        return set()
    # A name that begins with a colon would be a pattern.
    listed = b"".join(os.fsencode(f"./{folder}/") + b"\0" for folder in folders)
    words = ("check-ignore", "--no-index", "-z", "--stdin")
    found = zeros(git.run(*words, input=listed, codes=(0, 1)))
    return {os.fsdecode(name).removeprefix("./").rstrip("/") for name in found}
