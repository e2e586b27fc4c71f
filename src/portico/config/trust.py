"""Checks who can write a config file, and the code that it names: both run as the user."""

import os
import stat
from collections.abc import Iterable
from contextlib import suppress

from portico.config.problems import ConfigError

_ELSEWHERE = (
    "if that changes nothing, as on a Windows or network drive, move it to your home folder"
)


def check_owner(path: str, status: os.stat_result) -> None:
    """Raise ConfigError if another user, or every user, can write this file."""
    if os.name != "posix":
        return
    me = os.geteuid()
    if status.st_uid not in (me, 0):
        owner, mine = _user(status.st_uid), _user(me)
        raise ConfigError(
            f"{path}: refused: it belongs to {owner}, who could run commands as {mine} with it; "
            f"{'run' if me == 0 else 'have an administrator run'} `chown {me} {_quoted(path)}`, "
            f"copy it to a file of your own, or run Portico as {owner}"
        )
    if status.st_mode & stat.S_IWOTH:
        raise ConfigError(
            f"{path}: refused: every user can write to it (mode {_mode(status)}); "
            f"run `chmod o-w {_quoted(path)}`; {_ELSEWHERE}"
        )
    for folder in dict.fromkeys(
        map(os.path.dirname, (os.path.abspath(path), os.path.realpath(path)))
    ):
        _check_folder(path, folder)


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
