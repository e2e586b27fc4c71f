"""Finds folders of git. Their settings and hooks are programs that your next git command runs.

Git takes a folder for one of its own by its name, by a link or a `gitdir:` file that leads to it,
or by its contents, as with `git init --bare` and `--separate-git-dir`. The contents cover all
cases but the first.
"""

import os
import re
from collections.abc import Callable
from pathlib import Path

_IGNORED = re.compile("[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]")
"""Characters that macOS ignores in names, as git knows them (`core.protectHFS`)."""
_NAMES = frozenset({".git", "git~1"})
"""Its name, and the short form of it on Windows drives (`core.protectNTFS`)."""
_SIGNS = ("HEAD", "objects", "refs", "commondir")


def has_git_name(path: str) -> bool:
    """True if a path has a part that is `.git` on any file system."""
    return any(_plain(part) in _NAMES for part in path.split("/"))


def _plain(name: str) -> str:
    """Return a name as the most tolerant file systems compare it."""
    without_stream = name.split(":", 1)[0]
    return _IGNORED.sub("", without_stream).casefold().rstrip(". ")


def is_in_git(folder: str) -> bool:
    """True for a folder of git, and all folders in it; takes a resolved path."""
    path = Path(folder)
    return has_git_name(folder) or any(map(_is_git_at, (path, *path.parents)))


def _is_git_at(folder: Path) -> bool:
    return _is_git(lambda sign: os.path.lexists(folder / sign))


def holds_git(folder: int, with_name: str = "") -> bool:
    """True if an open folder is one of git, or would be with a further name in it."""
    return _is_git(lambda sign: sign.casefold() == with_name.casefold() or _has(folder, sign))


def _has(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return False
    return True


def _is_git(has: Callable[[str], bool]) -> bool:
    """Apply the rule of git; with `commondir` the other two are in another place."""
    head, objects, refs, elsewhere = _SIGNS
    return has(head) and (has(elsewhere) or (has(objects) and has(refs)))
