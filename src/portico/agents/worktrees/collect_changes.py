"""Brings the changes in a worktree to the user: into the user's own files, or as a branch.

Everything here waits for git; call it in a thread.
"""

import os
from collections.abc import Container
from tempfile import TemporaryDirectory

from portico.agents.worktrees.git_command import GitError, GitFolder
from portico.agents.worktrees.private_git import author
from portico.agents.worktrees.refs import write_branch
from portico.agents.worktrees.repository import find_repository
from portico.agents.worktrees.worktree import (
    Worktree,
    WorktreeState,
    plain_diff,
    shown_path,
    update_index,
    zeros,
)
from portico.agents.worktrees.worktree_record import WorktreeError

_PATCH = ("--binary", "--full-index")
_APPLY_S = 600.0
_MAX_NAMES = 5
_AUTHOR = {"NAME": "Portico", "EMAIL": "portico@localhost"}
"""For users who have configured none."""


def apply_to_user(worktree: Worktree) -> tuple[str, ...]:
    """Merge the changes into the user's files, and return the names of the changed files.

    Raises WorktreeError if that cannot be done without conflicts; then nothing is changed. Only
    the changes are merged: the user's own ones, and the user's index, stay as they are.
    """
    state, record = _collectable(worktree), worktree.record
    if not state.files:
        return ()
    user = _user_folder(worktree)
    theirs = worktree.tree()
    try:
        with TemporaryDirectory(prefix="portico-") as folder:
            merge = _Merge(user, folder, record.base, theirs)
            ours = merge.user_tree()
            merged = merge.merged_tree(ours)
            if merged != ours:
                merge.write(ours, merged)
    except GitError as error:
        raise WorktreeError(f"nothing was changed in {record.top}: {error}") from error
    return state.files


def leave_branch(worktree: Worktree, message: str) -> str:
    """Commit all changes on the branch of the worktree, and return that commit; raises
    WorktreeError. The agent's own commits stay in the branch's history."""
    _collectable(worktree)
    record, repository, tree = worktree.record, worktree.repository, worktree.tree()
    try:
        with TemporaryDirectory(prefix="portico-") as folder:
            git, commit = worktree.git.at(folder), worktree.head()
            if not commit or git.line("rev-parse", f"{commit}^{{tree}}") != tree:
                before, commit = commit or record.base, ""
                words = ("commit-tree", tree, "-p", before, "-m", message)
                who = {**_AUTHOR, **author(repository)}
                variables = {
                    f"GIT_{role}_{word}": value
                    for role in ("AUTHOR", "COMMITTER")
                    for word, value in who.items()
                }
                commit = git.run(*words, variables=variables).decode().strip()
                # Only what is new: the repository has everything that it lent us.
                wanted = f"{commit}\n^{before}\n".encode()
                packed = ("pack-objects", "-q", "--revs", "--local", f"{folder}/pack")
                git.run(*packed, input=wanted, timeout_s=_APPLY_S)
                repository.add_pack(folder)
        write_branch(repository, record.branch, commit)
    except GitError as error:
        raise WorktreeError(f"cannot commit the changes in {record.path}: {error}") from error
    return commit


class _Merge:
    """A merge of the changes between two trees into the user's files, beside the user's index."""

    def __init__(self, user: GitFolder, folder: str, base: str, theirs: str) -> None:
        self._user = user
        self._base, self._theirs = base, theirs
        self._index = os.path.join(folder, "index")
        self._patch = os.path.join(folder, "patch")

    def user_tree(self) -> str:
        """Return a tree of the user's present version of all files that the changes concern.
        Others do not matter, however many and large they are."""
        self._user.run("read-tree", self._base, index=self._index)
        concerned = self._names(self._base, self._theirs)
        top, known = os.fsencode(self._user.folder), set(concerned)
        if blocked := [name for name in concerned if _is_in_the_way(top, name, known)]:
            raise self._conflicting(blocked)
        present = {name for name in concerned if _is_file(os.path.join(top, name))}
        update_index(self._user, self._index, concerned, present)
        return self._written(self._index)

    def merged_tree(self, ours: str) -> str:
        """Return the tree with the changes of both sides; raises WorktreeError on conflicts."""
        base = self._agreed_tree(ours)
        if base == self._theirs:
            return ours
        self._write_patch("-M", base, self._theirs)
        try:
            with open(self._patch, "rb") as patch:
                words = ("apply", "--cached", "--3way", "--whitespace=nowarn", "-")
                self._user.run(*words, input=patch, index=self._index, timeout_s=_APPLY_S)
        except GitError as error:
            raise self._conflict(ours, error) from None
        return self._written(self._index)

    def _agreed_tree(self, ours: str) -> str:
        """Return the base with the changes that both sides have made, which need no merge: git
        cannot apply, say, the removal of a file that the user has removed, too."""
        index, differing = f"{self._index}-agreed", set(self._names(ours, self._theirs))
        raw = zeros(
            self._user.run(
                *plain_diff("--raw", "--no-abbrev", "--no-renames", "-z"), self._base, self._theirs
            )
        )
        lines = []
        for change, name in zip(raw[::2], raw[1::2], strict=True):
            _, mode, _, id, _ = change.split()
            if name not in differing:
                lines.append(mode + b" " + id + b"\t" + name + b"\0")
        self._user.run("read-tree", self._base, index=index)
        self._user.run("update-index", "-z", "--index-info", input=b"".join(lines), index=index)
        return self._written(index)

    def write(self, ours: str, merged: str) -> None:
        """Change the user's files; git checks all of them before it writes the first one."""
        self._write_patch("--no-renames", ours, merged)
        with open(self._patch, "rb") as patch:
            self._user.run("apply", "--whitespace=nowarn", "-", input=patch, timeout_s=_APPLY_S)

    def _conflict(self, ours: str, error: GitError) -> WorktreeError:
        both = set(self._names(self._base, ours)) & set(self._names(self._base, self._theirs))
        if not both:
            return WorktreeError(f"nothing was changed in {self._user.folder}: {error}")
        return self._conflicting(sorted(both))

    def _conflicting(self, names: list[bytes]) -> WorktreeError:
        shown = [shown_path(name) for name in names]
        more = f" and {len(shown) - _MAX_NAMES} more" if len(shown) > _MAX_NAMES else ""
        return WorktreeError(
            f"nothing was changed in {self._user.folder}: your own changes conflict with the "
            f"task's in {', '.join(shown[:_MAX_NAMES])}{more}; undo yours, or take the task's as a "
            "branch with --branch and merge it"
        )

    def _names(self, old: str, new: str) -> list[bytes]:
        return zeros(self._user.run(*plain_diff("--name-only", "--no-renames", "-z", old, new)))

    def _write_patch(self, renames: str, old: str, new: str) -> None:
        with open(self._patch, "wb") as file:
            self._user.run(*plain_diff(renames, *_PATCH, old, new), output=file)

    def _written(self, index: str) -> str:
        return self._user.run("write-tree", index=index).decode().strip()


def _collectable(worktree: Worktree) -> WorktreeState:
    """Return the state of a worktree that can be collected; raises WorktreeError."""
    state = worktree.state()
    if state.repositories:
        raise WorktreeError(
            f"{', '.join(state.repositories[:_MAX_NAMES])} in {worktree.record.path}: a git "
            "repository of its own, which cannot be collected; move it elsewhere, then retry"
        )
    return state


def _is_in_the_way(top: bytes, name: bytes, known: Container[bytes]) -> bool:
    """True for a folder of the user's in the place of a file, unless all files in it are known:
    git would notice it only after it has written others."""
    path = os.path.join(top, name)
    if os.path.islink(path):
        return False
    for inner, folders, found in os.walk(path):
        links = [folder for folder in folders if os.path.islink(os.path.join(inner, folder))]
        for file in (*found, *links):
            if os.path.relpath(os.path.join(inner, file), top) not in known:
                return True
    return False


def _is_file(path: bytes) -> bool:
    """True for a file, or a link that git stores as one."""
    return os.path.islink(path) or os.path.isfile(path)


def _user_folder(worktree: Worktree) -> GitFolder:
    """Return the user's folder, if it still belongs to the same repository."""
    record = worktree.record
    if worktree.is_nested:
        raise WorktreeError(
            f"{record.top} is itself the worktree of an agent, into which nothing is merged; take "
            "the changes as a branch with --branch"
        )
    try:
        found = find_repository(record.top)
    except WorktreeError:
        found = None
    if found is None or (found.top, found.common) != (record.top, record.common):
        raise WorktreeError(
            f"{record.top} is not the repository any more to which the worktree {record.path} "
            "belongs; take the changes as a branch with --branch, or as a patch with `diff`"
        )
    return worktree.git.at(record.top)
