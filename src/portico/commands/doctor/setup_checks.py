"""Checks that start nothing: the config, permissions and the disk."""

import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator

from portico.commands.doctor.faults import Finding, finding, from_message
from portico.core.config.paths import cache_folder, state_dir, state_folder
from portico.core.config.read import read
from portico.core.config.schema import Config
from portico.core.documents.problems import ConfigError
from portico.core.documents.trust import check_code, group_warning
from portico.core.state.files import dated, remove_old_drafts
from portico.upstream.auth.token import FILE_NAME, TokenError, read_token

_DRAFT = ".draft"
_DRAFT_S = 3600


def read_config(path: str) -> tuple[Config | None, list[Finding]]:
    """Read the config; None if that fails."""
    if not os.path.lexists(path):
        return None, [finding("no-config", f"{path}: no such file")]
    try:
        check_code([path])
    except ConfigError as error:
        fix = _chmod(path, stat.S_IWOTH) if _is_own(path) and _is_open(path) else None
        return None, [from_message("writable-config", str(error), fix)]
    try:
        config = read(path)
    except ConfigError as error:
        return None, [from_message("config", problem) for problem in error.problems]
    shared = group_warning(path)
    fix = _chmod(path, stat.S_IWGRP)
    return config, [
        *(from_message("writable-config", warning, fix) for warning in shared),
        *(from_message("config", one) for one in config.warnings if one not in shared),
        *(from_message("unresolved", one) for one in config.unresolved),
    ]


def check_permissions(config: Config | None) -> Iterator[Finding]:
    """Check the code that the config names, and our own folders."""
    for error in untrusted(config).values() if config is not None else ():
        yield from_message("writable-config", str(error))
    for folder in (state_folder(), cache_folder()):
        there = _nearest(folder)
        if os.path.lexists(folder) and not os.path.isdir(folder):
            yield finding("no-folder", f"{folder} is not a folder", folder=folder)
        elif not os.access(there, os.W_OK | os.X_OK):
            yield finding("no-folder", f"{there} is not writable", folder=there)
    try:
        read_token(state_dir())
    except TokenError as error:
        yield finding("token", str(error), file=str(state_dir() / FILE_NAME))


def untrusted(config: Config) -> dict[str, ConfigError]:
    """The files of links and components that others can write, with the reason."""
    found = {}
    for file in _code_of(config):
        try:
            check_code([file])
        except ConfigError as error:
            found[file] = error
    return found


def check_disk(min_free_mb: int) -> Iterator[Finding]:
    """Check the free space, and what killed processes left behind."""
    for folder in dict.fromkeys((state_folder(), cache_folder())):
        free = shutil.disk_usage(_nearest(folder)).free
        if free < min_free_mb * 1_000_000:
            yield finding("low-disk", f"{folder}: {free // 1_000_000:,} MB are free", folder=folder)
            break
    for folder in (*_below(state_folder()), *_below(cache_folder())):
        old = [at for at, _ in dated(folder, _DRAFT) if time.time() - at > _DRAFT_S]
        if old:
            what = f"{folder} has {len(old)} unfinished file{'s' if len(old) > 1 else ''}"
            yield finding("drafts", what, _cleaned(folder))


def _code_of(config: Config) -> list[str]:
    components = (file for one in config.components.values() for file in one.files if one.enabled)
    return [*config.link_files, *components]


def _chmod(path: str, bits: int) -> Callable[[], None]:
    return lambda: os.chmod(path, stat.S_IMODE(os.stat(path).st_mode) & ~bits)


def _cleaned(folder: str) -> Callable[[], None]:
    return lambda: remove_old_drafts(folder, time.time())


def _is_own(path: str) -> bool:
    return os.name == "posix" and os.stat(path).st_uid == os.geteuid()


def _is_open(path: str) -> bool:
    return bool(os.stat(path).st_mode & stat.S_IWOTH)


def _nearest(folder: str) -> str:
    """The folder, or the nearest one above that exists."""
    while not os.path.isdir(folder) and os.path.dirname(folder) != folder:
        folder = os.path.dirname(folder)
    return folder


def _below(folder: str) -> list[str]:
    """The folder, and those in it that Portico writes files to."""
    try:
        with os.scandir(folder) as entries:
            return [folder, *(one.path for one in entries if one.is_dir(follow_symlinks=False))]
    except OSError:
        return []
