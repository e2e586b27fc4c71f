"""Classifies a component that a user names: a file by its content, a URL, an alias or a command."""

import os
import re
import stat
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from msgspec.structs import replace

from portico.core.documents.names import is_valid_name, valid_name
from portico.core.model.errors import PorticoError
from portico.core.model.wording import close_matches, did_you_mean, is_nearly_url, printable

if TYPE_CHECKING:
    from portico.core.config.schema import ServerEntry

ComponentKind = Literal["python", "definitions", "wasm", "command", "url", "bundle"]

_URLS = ("http://", "https://")
_MAX_HEAD = 256 * 1024
"""The part of a file that is read to classify it."""
_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)  # opening a pipe must not wait for its writer
PROJECT_FILE = "component.toml"
_MAX_SHOWN = 160
"""The longest argument that a message repeats whole."""
# Patterns are compiled when they are first used: most arguments are a file, and need few of them.
_NAMED = r"(?s)([A-Za-z0-9_-]+)=(.+)"
_ASSIGNED = r"[A-Z_][A-Z0-9_]*"
"""The name of an environment variable, as opposed to that of a component."""
_VARIABLE = r"(?s)(.+):([^\W\d]\w*)"
_FILE_NAME = r"[^\s]+\.(py|json|wasm|portico)(:\w+)?|\.{0,2}/\S+"
"""An argument that must be meant as a file, even if there is none."""
_SDK = rb"(?m)^\s*(?:from|import)\s+(?:mcp|fastmcp)\b"
_OURS = (
    rb"(?m)^\s*from\s+portico\b|^\s*import\s.*\bportico\b"
    rb"|^(?:def|class)\s+links?\b|^links?\s*[:=]"
)
"""A Python file that uses Portico, or has a link."""
_TOML = rb"\[\[?\s*[\w\"'][^\]\n{},]*\]"
"""The first table of a TOML file; a definitions file begins with `[{` or `[]`."""
_PROGRAM = (b"#!", b"\x7fELF", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe")
"""The first bytes of a file that the system can execute."""
_WASM, _WASM_NAME = b"\0asm", ".wasm"
_ZIP, _BUNDLE_NAME = b"PK\3\4", ".portico"


class ComponentError(PorticoError):
    """A component that cannot be used; the message names it, the reason and a remedy."""


class InvalidArgument(ComponentError):
    """An argument that names nothing: it is empty, or has an unfinished quote."""

    exit_code = 2


class UnknownComponent(ComponentError):
    """An argument that is neither a file, an alias nor a command."""


class Component(Struct, frozen=True, kw_only=True):
    """One component of a composition."""

    name: str
    kind: ComponentKind
    argument: str
    """The component as the user wrote it, for messages."""
    path: str = ""
    """The file of a `python`, `definitions` or `bundle` component."""
    variable: str = ""
    """The variable in a Python file; empty to find it."""
    handlers: str = ""
    """The Python file with the functions for definitions."""
    argv: tuple[str, ...] = ()
    url: str = ""
    entry: "ServerEntry | None" = None
    """The entry of an alias, or of a sandboxed file, which has the options of its server."""
    binary: str = ""
    """The file of a `wasm` component, which a worker hosts."""
    start_s: float = 0.0
    """How long a command may take to start, and to list its tools; 0 for the usual time."""

    @property
    def is_file(self) -> bool:
        """True for a file that Portico itself loads."""
        return bool(self.path)

    @property
    def is_alias(self) -> bool:
        """True for a configured server or component."""
        return self.entry is not None and not (self.binary and os.path.exists(self.argument))

    @property
    def label(self) -> str:
        """The component for messages: without the arguments of a command, or all of a URL but its
        host, because they may contain secrets."""
        if self.url and self.entry is None:
            return _host_of(self.url)
        words = self.argument.split(None, 1)
        is_long = len(words) > 1 and not self.path and self.entry is None
        return _shown(f"{words[0]} ..." if is_long else self.argument)


Aliases = Mapping[str, "ServerEntry"]
"""The configured servers by name."""


def classify(argument: str, aliases: Aliases | None = None) -> Component:
    """Return the component that an argument names; raises ComponentError.

    `NAME=COMPONENT` gives it a name of its own. `aliases` are looked up after files and before
    commands, and only for a word that may be a name: they may be slow to read.
    """
    known: Aliases = {} if aliases is None else aliases  # its length may be slow to find
    name, rest = classify_name(argument)
    component = _unnamed(rest, known)
    return replace(component, name=name) if name else component


def classify_name(argument: str) -> tuple[str, str]:
    """Return the name in `NAME=COMPONENT` and the rest; raises ComponentError for a bad name."""
    named = None if _path_in(argument) else re.fullmatch(_NAMED, argument)
    if named is None:
        return "", argument
    name, rest = named.groups()
    _check_name(name, rest)
    return name, rest


def _check_name(name: str, rest: str) -> None:
    """Raise ComponentError for a name that a component cannot have, without the rest of the
    argument, which may be a secret."""
    if re.fullmatch(_ASSIGNED, name) and not _path_in(rest) and _is_value(rest):
        how = f'set {name} in the environment, or give "env {name}=... COMMAND"'
        raise ComponentError(f"{name}=... is a variable, not a component; {how}")
    if not is_valid_name(name):
        how = f"write {valid_name(name)}=COMPONENT"
        raise ComponentError(f"{name[:_MAX_SHOWN]!r} is not a valid name of a component; {how}")


def _is_value(text: str) -> bool:
    """True for the value of a variable and a command after it, as in a shell."""
    words = text.split()
    return len(words) > 1 and _program(words[0]) is None


def _unnamed(argument: str, aliases: Aliases) -> Component:
    if not argument.strip():
        raise InvalidArgument("the argument is empty; give a file, a URL or a quoted command")
    if argument.startswith(_URLS):
        return Component(name=_host_of(argument), kind="url", argument=argument, url=argument)
    found = _path_in(argument)
    may_be_name = is_valid_name(argument)
    if found is not None and not (may_be_name and os.path.isdir(argument)):
        return _file(argument, *found)
    if may_be_name and argument in aliases:
        return _alias(argument, aliases[argument])
    if found is not None and (is_project(argument) or _program(argument) is None):
        return _file(argument, *found)
    if re.fullmatch(_FILE_NAME, argument):
        path = re.sub(_VARIABLE, r"\1", argument) if ".py:" in argument else argument
        raise ComponentError(f"{_shown(path)}: no such file{_similar_file(path)}")
    return _command(argument, aliases)


def _path_in(argument: str) -> tuple[str, str] | None:
    """Return the path and the variable of an argument that names an existing file or folder."""
    if _exists(argument):
        return argument, ""
    found = re.fullmatch(_VARIABLE, argument)
    return (found[1], found[2]) if found is not None and _exists(found[1]) else None


def _exists(path: str) -> bool:
    try:
        os.stat(path)
    except PermissionError:
        return True  # in a folder that cannot be read; reported when the file is opened
    except (OSError, ValueError):
        return False
    return True


def is_project(folder: str) -> bool:
    """True for a folder with a `component.toml`."""
    return os.path.isfile(os.path.join(folder, PROJECT_FILE))


def _project(argument: str, folder: str) -> Component | None:
    """Return the component of a project's folder; None for any other folder."""
    from portico.library.components.project import project_in

    project = project_in(folder)
    if project is None:
        return None
    if not os.path.exists(project.path):
        import shlex

        how = f"run `{shlex.join(project.build)}` in the folder" if project.build else "write it"
        raise ComponentError(f"{_shown(argument)}: {project.component} does not exist yet; {how}")
    return replace(_file(project.path, project.path, ""), argument=argument)


def _file(argument: str, path: str, variable: str) -> Component:
    if os.path.isdir(path) and (project := _project(argument, path)) is not None:
        return project
    head = read_head(path)
    if head.startswith(_WASM) or path.endswith(_WASM_NAME):
        return _wasm(argument, path, head, variable)
    if head.startswith(_ZIP) or path.endswith(_BUNDLE_NAME):
        return _bundle(argument, path, head)
    kind = _kind_of(path, head, variable)
    if variable and kind != "python":
        what = "only a Python file that uses Portico has variables"
        raise ComponentError(f"{_shown(argument)}: {what}; remove :{variable}")
    if kind == "command":
        program = _runnable(path)
        runs = head.startswith(_PROGRAM) and os.access(path, os.X_OK)
        argv = (program,) if runs else (sys.executable, program)
        return Component(name=_stem(path), kind=kind, argument=argument, argv=argv)
    return Component(name=_stem(path), kind=kind, argument=argument, path=path, variable=variable)


def _bundle(argument: str, path: str, head: bytes) -> Component:
    from portico.library.bundles.bundle_reader import is_bundle

    if not head.startswith(_ZIP):
        what = "a file of another program" if head else "empty"
        how = "give a file that `portico compose` wrote"
        raise ComponentError(f"{_shown(path)}: {what}, not a bundle; {how}")
    if not is_bundle(head):
        how = "give a file that `portico compose` wrote; for an .mcpb, use `portico servers add`"
        raise ComponentError(f"{_shown(path)}: a zip file of another program, not a bundle; {how}")
    return Component(name=_stem(path), kind="bundle", argument=argument, path=path)


def _wasm(argument: str, path: str, head: bytes, variable: str) -> Component:
    from portico.core.config.schema import ComponentEntry
    from portico.library.components.wasm_process import check_wasm, wasm_server

    if variable:
        what = "only a Python file that uses Portico has variables"
        raise ComponentError(f"{_shown(argument)}: {what}; remove :{variable}")
    try:
        check_wasm(path, head)
    except PorticoError as error:
        raise ComponentError(f"{_shown(path)}: {error}") from None
    name = _stem(path)
    entry = wasm_server(ComponentEntry(name=name, path=path))
    return Component(
        name=name,
        kind="wasm",
        argument=argument,
        argv=(entry.command, *entry.args),
        entry=entry,
        binary=os.path.abspath(path),
    )


def _kind_of(path: str, head: bytes, variable: str) -> ComponentKind:
    """Return the kind of a file by its content."""
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text[:1] == b"[" and re.match(_TOML, text):
        how = f"serve it with `portico serve --config {_shown(path)}`"
        raise ComponentError(f"{_shown(path)}: a config, not a component; {how}")
    if text[:1] in (b"{", b"["):
        return "definitions"
    if _is_python(path, head):
        return "python" if _is_ours(head, variable) else "command"
    if head.startswith(_PROGRAM):
        if os.access(path, os.X_OK):
            return "command"
        what = f"the program may not be executed; run `chmod +x {_shown(path)}`"
    elif not text:
        what = "the file is empty"
    else:
        kinds = "Python, JSON, WebAssembly nor a program"
        what = f"the file is neither {kinds}; give the command that runs it"
    raise ComponentError(f"{_shown(path)}: not a component: {what}")


def _is_python(path: str, head: bytes) -> bool:
    shebang = head.split(b"\n", 1)[0] if head.startswith(b"#!") else b""
    return path.endswith(".py") or b"python" in shebang


def _is_ours(head: bytes, variable: str) -> bool:
    """False for a server of another library: a program that speaks MCP by itself."""
    if b"mcp" not in head or not re.search(_SDK, head) or re.search(_OURS, head):
        return True
    found = rb"(?m)^(?:def|class)\s+%s\b" % variable.encode()
    return bool(variable) and re.search(found, head) is not None


def read_head(path: str) -> bytes:
    """Return the beginning of a file; raises ComponentError."""
    try:
        with os.fdopen(os.open(path, _READ), "rb", buffering=0) as file:
            mode = os.fstat(file.fileno()).st_mode
            if stat.S_ISDIR(mode):
                raise IsADirectoryError
            if not stat.S_ISREG(mode):
                how = "give a .py or a .json file"
                raise ComponentError(f"{_shown(path)}: not a regular file; {how}")
            return file.read(_MAX_HEAD) or b""
    except IsADirectoryError:
        how = "give a file in it"
        raise ComponentError(f"{_shown(path)}: a folder, not a file; {how}") from None
    except PermissionError as error:
        how = "check the permissions of the file and its folder"
        raise ComponentError(f"{_shown(path)}: cannot be read: {error.strerror}; {how}") from None
    except OSError as error:
        why = f"cannot be read: {error.strerror or error}"
        raise ComponentError(f"{_shown(path)}: {why}") from None


def _alias(argument: str, entry: "ServerEntry") -> Component:
    if entry.problem:
        raise ComponentError(f"{argument}: {entry.problem}")
    kind: ComponentKind = "url" if entry.url else "command"
    argv = () if entry.url else (entry.command, *entry.args)
    found = Component(
        name=argument, kind=kind, argument=argument, argv=argv, url=entry.url, entry=entry
    )
    if entry.is_sandboxed:
        from portico.library.components.wasm_process import settings_of

        return replace(found, kind="wasm", binary=settings_of(entry).file)
    return found


def _command(argument: str, aliases: Aliases) -> Component:
    import shlex

    from portico.library.components.command_name import name_of_command

    try:
        argv = tuple(shlex.split(argument))
    except ValueError as error:  # only the reason is shown: a command may contain secrets
        why = f"cannot be split into a command and its arguments: {error}"
        raise InvalidArgument(f"the argument {why}") from None
    if argv and _program(argv[0]) is not None:
        return Component(name=name_of_command(argv), kind="command", argument=argument, argv=argv)
    if len(argv) > 1:
        files = did_you_mean(map(repr, _similar_files(argument)))
        hint = files or "check its name and your PATH"
        raise ComponentError(f"there is no command {_shown(argv[0])!r}; {hint}")
    what = "neither a file, an alias nor a command"
    hint = did_you_mean([*_similar_names(argument, aliases), *_similar_files(argument)])
    if not hint and is_nearly_url(argument):
        hint = "a URL begins with https:// or http://"
    hint = hint or "give server.py, tools.json, a URL or a quoted command"
    raise UnknownComponent(f"{_shown(argument)!r} is {what}; {hint}")


def _program(word: str) -> str | None:
    """Return the path of a program; None if there is none."""
    import shutil

    try:
        return shutil.which(word)
    except ValueError:  # it has a null character
        return None


def _runnable(path: str) -> str:
    return path if os.sep in path else os.path.join(os.curdir, path)


def _stem(path: str) -> str:
    return valid_name(os.path.splitext(os.path.basename(os.path.abspath(path)))[0])


def _host_of(url: str) -> str:
    from urllib.parse import urlsplit

    try:
        host = urlsplit(url).hostname
    except ValueError as error:  # the URL itself may contain a secret
        raise InvalidArgument(f"the URL is not valid: {error}") from None
    return valid_name(host or "server")


def _similar_file(path: str) -> str:
    hint = did_you_mean(_similar_files(path))
    return f"; {hint}" if hint else ""


def _similar_names(word: str, aliases: Aliases) -> list[str]:
    return close_matches(word, aliases) if is_valid_name(word) else []


def _similar_files(path: str) -> list[str]:
    """Return files with a similar name in the same folder."""
    folder, name = os.path.split(path)
    if len(name) > _MAX_SHOWN:
        return []
    try:
        there = os.listdir(folder or os.curdir)
    except (OSError, ValueError):
        return []
    return [os.path.join(folder, one) for one in close_matches(name, there, cutoff=0.75)]


def _shown(text: str) -> str:
    """Return a name for a message: on one line, and of a limited length."""
    line = printable(text)
    return line if len(line) <= _MAX_SHOWN else f"{line[: _MAX_SHOWN - 3]}..."
