"""The user's repository, read and written without git.

Agents write to it: its settings, hooks, links and refs are whatever they left there. So no git of
ours runs in it; the few files that matter are opened name by name, and links are not followed.
"""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from msgspec import Struct

from portico.agents.worktrees.worktree_record import WorktreeError
from portico.core.state import files
from portico.core.state.held_folder import HeldFolder

_GIT = ".git"
_WORKTREES = "worktrees"
_GITDIR = b"gitdir: "
_WORK_TREE = re.compile(rb"^\s*worktree\s*=\s*(.*?)\s*$", re.MULTILINE)
"""The setting by which a submodule knows its folder."""
_MAX_LINK = 1 << 16
_MAX_SETTINGS = 1 << 22
_MAX_INDEX = 1 << 30
_PACK_ORDER = (".pack", ".rev", ".idx")
"""An index comes last: git uses a pack as soon as it has one."""


class Repository(Struct, frozen=True):
    """A repository, and one of the user's folders that belong to it."""

    top: str
    own: str
    """The data of this folder; the same as `common` unless it is a worktree of the user's."""
    common: str

    @property
    def objects(self) -> str:
        """The folder of its objects."""
        return os.path.join(self.common, "objects")

    def check_objects(self) -> None:
        """Raise WorktreeError if its objects may be those of another repository: git would show
        what is in there."""
        with self.opened("objects") as objects:
            self._refuse_links(objects)
            for inner in _inner(objects):
                with inner:
                    self._refuse_links(inner)
        with suppress(FileNotFoundError), self.opened("objects", "info") as info:
            if "alternates" in info.names():
                raise WorktreeError(
                    f"{self.objects}/info/alternates borrows the objects of another repository, "
                    "which worktrees of agents must not; use `git repack -a -d`, and remove it"
                )

    def _refuse_links(self, folder: HeldFolder) -> None:
        with os.scandir(folder.fd) as entries:
            link = next((entry.name for entry in entries if entry.is_symlink()), None)
        if link is not None:
            raise WorktreeError(f"{link} in {self.objects} is a link; replace it by a copy")

    def settings(self) -> bytes:
        """Return its settings as they are written."""
        return self._content(self.common, (), "config", _MAX_SETTINGS)

    def ignored(self) -> bytes:
        """Return the patterns of files to ignore that are not in the commits."""
        return self._content(self.common, ("info",), "exclude", _MAX_SETTINGS)

    def index(self) -> bytes:
        """Return the index of the user's folder; empty if there is none."""
        return self._content(self.own, (), "index", _MAX_INDEX)

    def worktree_index(self, name: str) -> bytes:
        """Return the index of a worktree; empty if there is none."""
        return self._content(self.common, (_WORKTREES, name), "index", _MAX_INDEX)

    def add_worktree(self, name: str, path: str, branch: str, index: bytes) -> str:
        """Register a worktree, and return the folder of its data; raises WorktreeError."""
        with self.opened(_WORKTREES, is_made=True) as worktrees:
            worktrees.remove(name)
            with worktrees.inner(name, is_made=True) as own:
                own.write("commondir", b"../..\n")
                own.write("gitdir", os.fsencode(os.path.join(path, _GIT)) + b"\n")
                own.write("index", index)
                own.write("HEAD", f"ref: refs/heads/{branch}\n".encode())
        return os.path.join(self.common, _WORKTREES, name)

    def remove_worktree(self, name: str) -> None:
        """Remove the data of a worktree; raises WorktreeError."""
        with suppress(FileNotFoundError):
            with self.opened(_WORKTREES) as worktrees:
                worktrees.remove(name)
            with self.opened() as common, suppress(OSError):  # others may be left
                os.rmdir(_WORKTREES, dir_fd=common.fd)

    def add_pack(self, folder: str) -> None:
        """Add the objects of a pack, whose files are alone in a folder; raises WorktreeError."""
        names = sorted(
            os.listdir(folder), key=lambda name: _PACK_ORDER.index(name[name.rfind(".") :])
        )
        with self.opened("objects", "pack", is_made=True) as packs:
            for name in names:
                with (
                    suppress(FileExistsError),
                    open(os.path.join(folder, name), "rb") as source,
                    os.fdopen(packs.create(name), "wb") as target,
                ):
                    shutil.copyfileobj(source, target)

    @contextmanager
    def opened(self, *names: str, is_made: bool = False) -> Iterator[HeldFolder]:
        """One of its folders; raises WorktreeError or FileNotFoundError."""
        where = os.path.join(self.common, *names)
        try:
            with HeldFolder.at(self.common) as common, common.below(*names, is_made=is_made) as one:
                yield one
        except FileNotFoundError:
            raise
        except OSError as error:
            raise WorktreeError(f"cannot use {where}: {_reason(error)}") from error

    def _content(self, start: str, folders: tuple[str, ...], name: str, max_size: int) -> bytes:
        """Return the content of a file; nothing if it is missing, or not a plain file."""
        with suppress(OSError), HeldFolder.at(start) as held, held.below(*folders) as folder:
            return folder.read(name, max_size)
        return b""


def find_repository(cwd: str) -> Repository | None:
    """Return the repository that contains a folder; None if there is none. Raises WorktreeError if
    the folder only claims to belong to it."""
    top = os.path.realpath(cwd)
    while not os.path.lexists(os.path.join(top, _GIT)):
        top, inner = os.path.dirname(top), top
        if top == inner:
            return None
    own = _git_folder(top)
    return Repository(top, own, _common(own))


def _git_folder(top: str) -> str:
    """Return the data of the top folder of a worktree; raises WorktreeError."""
    path = os.path.join(top, _GIT)
    if os.path.isdir(path) and not os.path.islink(path):
        return path
    try:
        raw, _ = files.read(path, _MAX_LINK)
    except OSError as error:
        why = "it is a link" if os.path.islink(path) else error.strerror
        raise WorktreeError(f"cannot use the repository of {path}: {why}") from error
    named = os.fsdecode(raw.removeprefix(_GITDIR).rstrip(b"\r\n"))
    own = os.path.realpath(os.path.join(top, named))
    # An agent can write this file, but nothing in a repository of which it has no worktree.
    if not _points_back(own, top):
        raise WorktreeError(f"cannot use the repository of {path}: {own} does not name {top}")
    return own


def _points_back(own: str, top: str) -> bool:
    """True if the data is that of a worktree, or of a submodule, in this folder."""
    with suppress(OSError), HeldFolder.at(own) as held:
        with suppress(FileNotFoundError):
            back = os.fsdecode(held.read("gitdir", _MAX_LINK).rstrip(b"\n"))
            return os.path.realpath(os.path.join(own, back)) == os.path.join(top, _GIT)
        if found := _WORK_TREE.search(held.read("config", _MAX_SETTINGS)):
            return os.path.realpath(os.path.join(own, os.fsdecode(found[1]))) == top
    return False


def _common(own: str) -> str:
    """Return the repository of a worktree by its place: an agent can write to `commondir`."""
    above, name = os.path.split(os.path.dirname(own))
    return above if name == _WORKTREES and os.path.lexists(f"{own}/commondir") else own


def _inner(folder: HeldFolder) -> Iterator[HeldFolder]:
    for name in folder.names():
        # A link is not a folder, and git removes folders of objects that it packs.
        with suppress(NotADirectoryError, FileNotFoundError):
            yield folder.inner(name)


def _reason(error: OSError) -> str:
    if isinstance(error, NotADirectoryError):
        return "a link, or a file, is where a folder should be"
    return error.strerror or str(error)
