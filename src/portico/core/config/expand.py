"""Resolves references: `${VAR}` in a value, and values that are `file:PATH` or `keyring:NAME`.

Resolved text is not expanded again, so a variable's value cannot name a file to read.
"""

import os
import re
import stat
from collections.abc import Mapping

from msgspec import Struct, field

from portico.core.model.wording import printable
from portico.core.state.files import read

_REFERENCE = re.compile(r"\$\{([^}]*)(\}?)")
_VARIABLE = re.compile(r"(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?:(:-)(.*))?", re.DOTALL | re.ASCII)
_EDITOR_ONLY = ("workspaceFolder", "workspaceFolderBasename")
_EDITOR_VARIABLES = {"userHome": lambda: os.path.expanduser("~"), "pathSeparator": lambda: os.sep}
_FILE, _KEYRING = "file:", "keyring:"
_MAX_SECRET = 64 * 1024
SERVICE = "portico"
"""The service name of our secrets in the keyring."""


class Unresolved(Exception):
    """A reference cannot be resolved; the message gives the reason and remedy, never a value."""

    def __init__(self, what: str, remedy: str, *, is_mistake: bool = False) -> None:
        """`is_mistake` means that the config itself is wrong."""
        super().__init__(what)
        self.what = what
        self.remedy = remedy
        self.is_mistake = is_mistake


def is_elsewhere(raw: str) -> bool:
    """True if a value, or part of it, comes from a variable, a file or the keyring."""
    return "${" in raw or raw.startswith((_FILE, _KEYRING))


class Sources(Struct, frozen=True):
    """The environment and folder that references are resolved against."""

    environ: Mapping[str, str]
    folder: str
    """The base of relative paths."""
    looked_up: set[str] = field(default_factory=set)
    """The names of all variables that were looked up."""

    def resolve(self, raw: str) -> str:
        """Resolve a value that may also refer to a file or to a secret in the keyring."""
        if raw.startswith(_FILE) and not raw.startswith("file://"):  # that is a URL
            return self._file(raw.removeprefix(_FILE))
        if raw.startswith(_KEYRING):
            name = raw.removeprefix(_KEYRING)
            return _from_keyring(self.expand(name), _short(name))
        return self.expand(raw)

    def expand(self, raw: str) -> str:
        """Replace the `${...}` references in a value."""
        return _REFERENCE.sub(self._found, raw) if "${" in raw else raw

    def path(self, given: str) -> str:
        """Resolve a path: `~` is the home folder, relative paths start at the file's folder."""
        return os.path.normpath(os.path.join(self.folder, os.path.expanduser(given)))

    def _found(self, reference: re.Match[str]) -> str:
        body, closed = reference[1], reference[2]
        if not closed:
            raise Unresolved("${ has no closing }", "add it", is_mistake=True)
        if body.startswith(_FILE):
            return self._file(body.removeprefix(_FILE))
        if body.startswith("input:"):
            raise Unresolved(
                f"${{{_short(body)}}} cannot be prompted for here",
                "set an environment variable and write ${env:NAME}, or use `portico import`",
            )
        match = _VARIABLE.fullmatch(body)
        if match is None or "${" in body:
            raise Unresolved(
                "${...} does not name a variable",
                "write ${NAME}, ${NAME:-default}, ${env:NAME} or ${file:PATH}",
                is_mistake=True,
            )
        name, has_default, default = match[1], match[2], match[3]
        self.looked_up.add(name)
        value = self.environ.get(name)
        if has_default:
            return value or default
        if value is None and name in _EDITOR_VARIABLES:
            return _EDITOR_VARIABLES[name]()
        if value is None and name in _EDITOR_ONLY:
            raise Unresolved(f"${{{name}}} is only available in an editor", "write the path itself")
        if value is None:
            raise Unresolved(f"{name} is not set", f"set it, or write ${{{name}:-default}}")
        return value

    def _file(self, given: str) -> str:
        path = self.path(self.expand(given))
        # A message may show the path as written, but not a variable's value.
        shown = _short(given if "${" in given else path)
        try:
            data, status = read(path, _MAX_SECRET, follow=True)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise Unresolved(
                f"{shown} cannot be read: {why}", "give the file with the value"
            ) from None
        if os.name == "posix" and status.st_mode & stat.S_IWOTH:
            raise Unresolved(f"every user can write to {shown}", "run `chmod o-w` on it")
        try:
            return data.decode().rstrip("\r\n")
        except UnicodeDecodeError:
            raise Unresolved(f"{shown} is not UTF-8 text", "save it as text") from None


def is_reference(raw: str) -> bool:
    """Whether a value, or a part of it, comes from elsewhere."""
    is_file = raw.startswith(_FILE) and not raw.startswith("file://")
    return is_file or raw.startswith(_KEYRING) or "${" in raw


def _from_keyring(name: str, shown: str) -> str:
    from importlib import import_module

    try:
        keyring = import_module("keyring")
    except ImportError:
        raise Unresolved(
            f"keyring:{shown} needs the keyring package",
            "`pip install keyring` in Portico's environment, or use a variable",
        ) from None
    try:
        value = keyring.get_password(SERVICE, name)
    except keyring.errors.KeyringError as error:
        raise Unresolved(
            f"the keyring did not return {shown}: {type(error).__name__}",
            "unlock it, or use a variable",
        ) from None
    if not isinstance(value, str):
        raise Unresolved(f"the keyring has no {shown}", f"`keyring set {SERVICE} {shown}` adds it")
    return value


def _short(text: str) -> str:
    cut = text if len(text) <= 200 else f"{text[:200]}…"
    return printable(cut)
