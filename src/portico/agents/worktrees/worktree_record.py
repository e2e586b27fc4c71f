"""A worktree as it is stored, and the error of all work with worktrees."""

from msgspec import Struct

from portico.core.model.errors import PorticoError


class WorktreeError(PorticoError):
    """A task cannot work in its folder, or its changes cannot be read or collected."""


class WorktreeRecord(Struct, frozen=True, kw_only=True):
    """A worktree as it is stored, where no agent needs to write."""

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
    inode: int = 0
    """The number of its folder, by which another one in its place is recognised."""
