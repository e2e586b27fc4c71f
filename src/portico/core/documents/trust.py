"""Checks who can write a config file, and the code that it names: both run as the user."""

import os
import stat
from collections.abc import Iterable
from contextlib import suppress

from portico.core.documents.problems import ConfigError

_ELSEWHERE = (
    "if that changes nothing, as on a Windows or network drive, move it to your home folder"
)
_MAX_LINKS = 40


def check_owner(path: str, status: os.stat_result) -> None:
    """Raise ConfigError if another user, or every user, can write this file."""
    if os.name != "posix":
        return
    links = _links(os.path.abspath(path))
    _check_user(path, status.st_uid, f"chown {os.geteuid()} {_quoted(path)}")
    for link in links:
        _check_user(path, os.lstat(link).st_uid, f"chown -h {os.geteuid()} {_quoted(link)}")
    if status.st_mode & stat.S_IWOTH:
        raise ConfigError(
            f"{path}: refused: every user can write to it (mode {_mode(status)}); "
            f"run `chmod o-w {_quoted(path)}`; {_ELSEWHERE}"
        )
    steps = (os.path.abspath(path), *links, os.path.realpath(path))
    for folder in dict.fromkeys(map(os.path.dirname, steps)):
        _check_folder(path, folder)


def _links(path: str) -> list[str]:
    """Return the path and those that it leads to, as far as they are links."""
    found: list[str] = []
    while len(found) < _MAX_LINKS and os.path.islink(path):
        found.append(path)
        path = os.path.join(os.path.dirname(path), os.readlink(path))
    return found


def _check_user(path: str, user: int, repair: str) -> None:
    me = os.geteuid()
    if user in (me, 0):
        return
    owner, mine = _user(user), _user(me)
    raise ConfigError(
        f"{path}: refused: it belongs to {owner}, who could run commands as {mine} with it; "
        f"{'run' if me == 0 else 'have an administrator run'} `{repair}`, "
        f"copy it to a file of your own, or run Portico as {owner}"
    )


def check_code(files: Iterable[str]) -> None:
    """Raise ConfigError if another user can write one of these files; a missing one is left to
    the reader."""
    for file in files:
        with suppress(OSError):
            check_owner(file, os.stat(file))


def _check_folder(path: str, folder: str) -> None:
    with suppress(OSError):
        above = os.stat(folder)
        if above.st_mode & stat.S_IWOTH and not above.st_mode & stat.S_ISVTX:
            raise ConfigError(
                f"{path}: refused: every user can replace it, because all can write to {folder} "
                f"(mode {_mode(above)}); run `chmod o-w {_quoted(folder)}`; {_ELSEWHERE}"
            )


def group_warning(path: str) -> list[str]:
    """A warning if a group can write to the config."""
    with suppress(OSError):
        status = os.stat(path)
        if os.name == "posix" and status.st_mode & stat.S_IWGRP:
            group = _group(status.st_gid)
            return [
                f"{path}: all members of {group} can write to it (mode {_mode(status)}) and so "
                f"run commands as you; run `chmod g-w {_quoted(path)}`"
            ]
    return []


def _quoted(path: str) -> str:
    from shlex import quote

    return quote(path)


def _mode(status: os.stat_result) -> str:
    return f"{stat.S_IMODE(status.st_mode):04o}"


def _user(number: int) -> str:
    import pwd

    with suppress(KeyError):
        return f"user {pwd.getpwuid(number).pw_name}"
    return f"user {number}"


def _group(number: int) -> str:
    import grp

    with suppress(KeyError):
        return f"group {grp.getgrgid(number).gr_name}"
    return f"group {number}"
