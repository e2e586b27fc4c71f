"""Classifies a component that a user names: a file by its content, a URL, an alias or a command."""

import os
import re
import shlex
import stat
import sys
from collections.abc import Mapping
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from portico.config.names import is_valid_name, valid_name
from portico.config.schema import ServerEntry
from portico.model.errors import PorticoError
from portico.model.wording import close_matches, did_you_mean

ComponentKind = Literal["python", "definitions", "command", "url"]

_URLS = ("http://", "https://")
_MAX_HEAD = 256 * 1024
"""The part of a file that is read to classify it."""
_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)  # opening a pipe must not wait for its writer
_NAMED = re.compile(r"([A-Za-z0-9_-]+)=(.+)", re.DOTALL)
_VARIABLE = re.compile(r"(.+):([^\W\d]\w*)", re.DOTALL)
_FILE_NAME = re.compile(r"[^\s]+\.(py|json|wasm)(:\w+)?|\.{0,2}/\S+")
"""An argument that must be meant as a file, even if there is none."""
_SDK = re.compile(rb"^\s*(?:from|import)\s+(?:mcp|fastmcp)\b", re.MULTILINE)
_LAUNCHERS = frozenset(
    {"bun", "bunx", "deno", "docker", "node", "npx", "pipx", "portico", "uv", "uvx"}
)
_LAUNCHER_WORDS = frozenset({"dlx", "exec", "run", "tool", "x"})
_BINARY = (b"\x7fELF", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe")
_WASM = b"\0asm"


class ComponentError(PorticoError):
    """A component that cannot be used; the message names it, the reason and a remedy."""


class InvalidArgument(ComponentError):
    """An argument that names nothing: it is empty, or has an unfinished quote."""

    exit_code = 2


class Component(Struct, frozen=True, kw_only=True):
    """One component of a composition."""

    name: str
    kind: ComponentKind
    argument: str
    """The component as the user wrote it, for messages."""
    path: str = ""
    """The file of a `python` or `definitions` component."""
    variable: str = ""
    """The variable in a Python file; empty to find it."""
    argv: tuple[str, ...] = ()
    url: str = ""
    entry: ServerEntry | None = None
    """The entry of an alias, which has the options of its server."""

    @property
    def is_file(self) -> bool:
        """True for a file that Portico itself loads."""
        return bool(self.path)


Aliases = Mapping[str, ServerEntry]
"""The configured servers by name."""


def classify(argument: str, aliases: Aliases | None = None) -> Component:
    """Return the component that an argument names; raises ComponentError.

    `NAME=COMPONENT` gives it a name of its own. `aliases` are looked up after files and before
    commands.
    """
    named = _NAMED.fullmatch(argument)
    if named is not None and not os.path.exists(argument):
        name = named[1]
        if not is_valid_name(name):
            why = f"{name!r} is not a valid name"
            raise ComponentError(f"{argument}: {why}; write {valid_name(name)}={named[2]}")
        return replace(_unnamed(named[2], aliases or {}), name=name)
    return _unnamed(argument, aliases or {})


def _unnamed(argument: str, aliases: Aliases) -> Component:
    if not argument.strip():
        raise InvalidArgument("the argument is empty; give a file, a URL or a quoted command")
    if argument.startswith(_URLS):
        return Component(name=_host_of(argument), kind="url", argument=argument, url=argument)
    path, variable = argument, ""
    found = None if os.path.exists(argument) else _VARIABLE.fullmatch(argument)
    if found is not None and (os.path.exists(found[1]) or found[1].endswith(".py")):
        path, variable = found[1], found[2]
    if os.path.exists(path):
        return _file(argument, path, variable)
    if argument in aliases:
        return _alias(argument, aliases[argument])
    if _FILE_NAME.fullmatch(argument):
        raise ComponentError(f"{path}: no such file{_similar_file(path)}")
    return _command(argument, aliases)


def _file(argument: str, path: str, variable: str) -> Component:
    head = _head(path)
    if head.startswith(_WASM):
        raise ComponentError(f"{path}: WebAssembly components are not supported yet")
    kind = _kind_of(path, head)
    if variable and kind != "python":
        raise ComponentError(f"{argument}: only a Python file has variables; remove :{variable}")
    if kind == "command":
        argv = (_runnable(path),) if os.access(path, os.X_OK) else (sys.executable, path)
        return Component(name=_stem(path), kind=kind, argument=argument, argv=argv)
    return Component(name=_stem(path), kind=kind, argument=argument, path=path, variable=variable)


def _kind_of(path: str, head: bytes) -> ComponentKind:
    """Return the kind of a file by its content."""
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text[:1] in (b"{", b"["):
        return "definitions"
    shebang = text.split(b"\n", 1)[0] if text.startswith(b"#!") else b""
    if path.endswith(".py") or b"python" in shebang:
        # A server of another library is a program that speaks MCP by itself.
        return "command" if _SDK.search(head) and b"portico" not in head else "python"
    if os.access(path, os.X_OK) and (shebang or text.startswith(_BINARY)):
        return "command"
    what = "empty" if not text else "neither Python, JSON nor a program"
    raise ComponentError(f"{path}: not a component: the file is {what}")


def _head(path: str) -> bytes:
    try:
        with os.fdopen(os.open(path, _READ), "rb", buffering=0) as file:
            mode = os.fstat(file.fileno()).st_mode
            if stat.S_ISDIR(mode):
                raise IsADirectoryError
            if not stat.S_ISREG(mode):
                raise ComponentError(f"{path}: not a regular file; give a .py or a .json file")
            return file.read(_MAX_HEAD) or b""
    except IsADirectoryError:
        raise ComponentError(f"{path}: a folder, not a file; give a file in it") from None
    except OSError as error:
        raise ComponentError(f"{path}: cannot be read: {error.strerror or error}") from None


def _alias(argument: str, entry: ServerEntry) -> Component:
    kind: ComponentKind = "url" if entry.url else "command"
    argv = () if entry.url else (entry.command, *entry.args)
    return Component(
        name=argument, kind=kind, argument=argument, argv=argv, url=entry.url, entry=entry
    )


def _command(argument: str, aliases: Aliases) -> Component:
    import shutil

    try:
        argv = tuple(shlex.split(argument))
    except ValueError as error:  # only the reason is shown: a command may contain secrets
        why = f"cannot be split into a command and its arguments: {error}"
        raise InvalidArgument(f"the argument {why}") from None
    if not argv or shutil.which(argv[0]) is None:
        if len(argv) > 1:
            hint = "check its name and your PATH"
            raise ComponentError(f"there is no command {argv[0]!r}; {hint}")
        what = "neither a file, an alias nor a command"
        near = [*close_matches(argument, aliases), *_similar_files(argument)]
        hint = did_you_mean(near) or "give server.py, tools.json, a URL or a quoted command"
        raise ComponentError(f"{argument!r} is {what}; {hint}")
    return Component(name=name_of_command(argv), kind="command", argument=argument, argv=argv)


def name_of_command(argv: tuple[str, ...]) -> str:
    """Return a short name for a server's command: `everything` for
    `npx -y @modelcontextprotocol/server-everything`."""
    program = os.path.basename(argv[0])
    words = argv[:1]
    if program in _LAUNCHERS or re.fullmatch(r"python[\d.]*", program):
        plain = (one for one in argv[1:] if not one.startswith("-") and "=" not in one)
        words = tuple(one for one in plain if one not in _LAUNCHER_WORDS)[:1] or argv[:1]
    name = os.path.basename(words[0].rstrip("/"))
    name = re.sub(r"(?<=.)(@[^@]*|==.*|\.(py|js|mjs|cjs|ts|sh))$", "", name)
    return valid_name(re.sub(r"^(mcp-server-|server-|mcp-)(?=.)", "", name) or program)


def _runnable(path: str) -> str:
    return path if os.sep in path else os.path.join(os.curdir, path)


def _stem(path: str) -> str:
    return valid_name(os.path.splitext(os.path.basename(os.path.abspath(path)))[0])


def _host_of(url: str) -> str:
    from urllib.parse import urlsplit

    return valid_name(urlsplit(url).hostname or "server")


def _similar_file(path: str) -> str:
    hint = did_you_mean(_similar_files(path))
    return f"; {hint}" if hint else ""


def _similar_files(path: str) -> list[str]:
    """Return files with a similar name in the same folder."""
    folder, name = os.path.split(path)
    try:
        there = os.listdir(folder or os.curdir)
    except (OSError, ValueError):
        return []
    return [os.path.join(folder, one) for one in close_matches(name, there, cutoff=0.75)]
