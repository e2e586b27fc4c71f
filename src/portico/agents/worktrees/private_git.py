"""A git folder of Portico's own, in which all work on an agent's changes is done.

Its settings, refs and index are ours. It borrows the objects of the user's repository, and nothing
else from there can reach git but the values below, as data.
"""

import os
import re
from collections.abc import Iterator
from contextlib import suppress

from portico.agents.worktrees.git_command import GitError, GitFolder
from portico.agents.worktrees.repository import Repository
from portico.core.state import files

_SETTINGS_S = 20.0
_SAFE = {
    "core.autocrlf": r"true|false|input",
    "core.eol": r"lf|crlf|native",
    "core.filemode": r"true|false",
    "core.ignorecase": r"true|false",
    "core.precomposeunicode": r"true|false",
    "core.symlinks": r"true|false",
}
"""Settings that change what files contain, and the values that they may have."""
_IGNORED = "core.excludesfile"
_SHA256 = 64


class PrivateGit:
    """The git folder for one worktree."""

    def __init__(self, path: str, repository: Repository, base: str) -> None:
        self.path = path
        self.index = os.path.join(path, "index")
        """An index with the files of the commit with which the work began."""
        self._repository = repository
        self._base = base

    def at(self, work_tree: str) -> GitFolder:
        """Return git for a folder in which no agent can write."""
        return GitFolder(work_tree, self.path)

    def refresh(self) -> None:
        """Write all files but the index again, by the repository's present settings; raises
        WorktreeError or OSError."""
        self._repository.check_objects()
        for name in ("refs", "info", "objects/info"):
            files.make_folder(os.path.join(self.path, name))
        self._write("HEAD", self._base)
        self._write("config", "".join(self._config()))
        self._write("objects/info/alternates", _quoted(self._repository.objects))
        files.replace(os.path.join(self.path, "info", "exclude"), self._repository.ignored())

    def _write(self, name: str, text: str) -> None:
        files.replace(os.path.join(self.path, name), os.fsencode(f"{text}\n"))

    def _config(self) -> Iterator[str]:
        is_long = len(self._base) == _SHA256
        yield f"[core]\nbare = false\nrepositoryFormatVersion = {int(is_long)}\n"
        own = own_settings(self._repository)
        known = {**own, **_settings_in(self._repository)}
        for key, values in _SAFE.items():
            if re.fullmatch(values, known.get(key, "")):
                yield f"{key.removeprefix('core.')} = {known[key]}\n"
        yield f"excludesFile = {_quoted(own.get(_IGNORED) or _default_ignored())}\n"
        if is_long:
            yield "[extensions]\nobjectFormat = sha256\n"


def author(repository: Repository) -> dict[str, str]:
    """Return the name and the email of the user, as far as they are configured."""
    known = {**own_settings(repository), **_settings_in(repository)}
    keys = {"NAME": "user.name", "EMAIL": "user.email"}
    return {word: known[key] for word, key in keys.items() if known.get(key)}


def own_settings(repository: Repository) -> dict[str, str]:
    """Return the settings of the machine and of the user, which no agent in a sandbox changes."""
    # In the repository, since a user's settings can depend on its path; git reads its format, and
    # would wait for a pipe in the place of that.
    git = GitFolder(repository.top if repository.settings() else "/", is_users=True)
    found: dict[str, str] = {}
    for scope in ("--system", "--global"):
        with suppress(GitError):  # there may be none
            words = ("config", scope, "--includes", "--list", "-z")
            found |= _parsed(git.run(*words, timeout_s=_SETTINGS_S))
    return found


def _settings_in(repository: Repository) -> dict[str, str]:
    """Return the settings of a repository, without those of files that it includes."""
    words = ("config", "--file", "-", "--no-includes", "--list", "-z")
    with suppress(GitError):  # it may be damaged
        listed = GitFolder("/").run(*words, input=repository.settings(), timeout_s=_SETTINGS_S)
        return _parsed(listed)
    return {}


def _parsed(listed: bytes) -> dict[str, str]:
    entries = (os.fsdecode(entry).partition("\n") for entry in listed.split(b"\0") if entry)
    return {key: value for key, _, value in entries}


def _default_ignored() -> str:
    folder = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return os.path.join(os.path.expanduser(folder), "git", "ignore")


def _quoted(path: str) -> str:
    """Return a path as git reads it in its own files."""
    path = os.path.expanduser(path)
    escaped = path.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
