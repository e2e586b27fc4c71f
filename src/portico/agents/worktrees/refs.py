"""The refs of a repository, read and written as files: by descriptors, following no links."""

import os
import re
from contextlib import suppress

from portico.agents.worktrees.repository import Repository
from portico.agents.worktrees.worktree_record import WorktreeError
from portico.core.state.held_folder import HeldFolder

_ID = re.compile(rb"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_BRANCHES = "refs/heads/"
_PACKED = "packed-refs"
_MAX_DEPTH = 5
_MAX_REF = 4096
_MAX_PACKED = 1 << 28
_NO_FILES = "ref: refs/heads/.invalid"
"""The HEAD of a repository that stores its refs in another way."""


def head(repository: Repository, own: str) -> str:
    """Return the commit that is checked out, by the data of a worktree; empty if there is none.
    Raises WorktreeError."""
    return _resolved(repository, _line(own, "HEAD"))


def branch_tip(repository: Repository, branch: str) -> str:
    """Return the commit of a branch; empty if there is no such branch."""
    return _resolved(repository, f"ref: {_BRANCHES}{branch}")


def write_branch(repository: Repository, branch: str, commit: str) -> None:
    """Create a branch, or move it; raises WorktreeError."""
    *folders, name = f"{_BRANCHES}{branch}".split("/")
    try:
        with repository.opened(*folders, is_made=True) as folder:
            folder.write(name, f"{commit}\n".encode())
    except FileNotFoundError:
        raise WorktreeError(f"{repository.common} is missing") from None


def delete_branch(repository: Repository, branch: str) -> None:
    """Delete a branch unless it is checked out; raises WorktreeError."""
    if _is_checked_out(repository, branch):
        return
    ref = f"{_BRANCHES}{branch}"
    with suppress(FileNotFoundError):
        _delete_packed(repository, ref.encode())
    for path in (ref, f"logs/{ref}"):
        *folders, name = path.split("/")
        with suppress(FileNotFoundError), repository.opened(*folders) as folder:
            folder.unlinked(name)
        if "/" in branch:  # our folder of branches, which may be empty now
            *folders, name = folders
            with (
                suppress(FileNotFoundError),
                repository.opened(*folders) as folder,
                suppress(OSError),
            ):
                os.rmdir(name, dir_fd=folder.fd)


def _resolved(repository: Repository, text: str) -> str:
    for _ in range(_MAX_DEPTH):
        if text == _NO_FILES:
            raise WorktreeError(
                f"{repository.common} does not store its refs in files, and worktrees of agents "
                "need that; migrate it with `git refs migrate --ref-format=files`"
            )
        if not text.startswith("ref:"):
            return text if _ID.fullmatch(text.encode()) else ""
        name = text.removeprefix("ref:").strip()
        if not name.startswith("refs/") or ".." in name:
            return ""
        text = _line(repository.common, name) or _packed(repository, name)
    return ""


def _line(start: str, name: str) -> str:
    """Return the only line of a small file; empty if there is no such file."""
    *folders, last = name.split("/")
    try:
        with HeldFolder.at(start) as held, held.below(*folders) as folder:
            return os.fsdecode(folder.read(last, _MAX_REF)).strip()
    except OSError:
        return ""


def _packed(repository: Repository, name: str) -> str:
    with suppress(OSError, WorktreeError), repository.opened() as common:
        for line in common.read(_PACKED, _MAX_PACKED).splitlines():
            id, _, known = line.partition(b" ")
            if known == os.fsencode(name) and _ID.fullmatch(id):
                return id.decode()
    return ""


def _delete_packed(repository: Repository, ref: bytes) -> None:
    with repository.opened() as common:
        lines = common.read(_PACKED, _MAX_PACKED).splitlines(keepends=True)
        kept, is_deleted = [], False
        for line in lines:
            if not line.startswith(b"^"):  # the object to which the tag above points
                is_deleted = line.partition(b" ")[2].rstrip(b"\n") == ref
            if not is_deleted:
                kept.append(line)
        if len(kept) != len(lines):
            common.write(_PACKED, b"".join(kept))


def _is_checked_out(repository: Repository, branch: str) -> bool:
    with suppress(FileNotFoundError), repository.opened() as common:
        names = ["HEAD"]
        with suppress(OSError), common.inner("worktrees") as worktrees:
            names += [f"worktrees/{name}/HEAD" for name in worktrees.names()]
        wanted = f"ref: {_BRANCHES}{branch}"
        return any(_line(repository.common, name) == wanted for name in names)
    return False
