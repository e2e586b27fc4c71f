"""Parses a config file: TOML, or JSON as any client writes it."""

import os
import re
import stat
from typing import Any

from msgspec import Struct

from portico.core.documents.problems import ConfigError, Path
from portico.core.documents.trust import check_owner

MAX_SIZE = 4 * 1024 * 1024
_BOM = "\ufeff"
# Compiled only when there is an error, to keep startup fast.
_TOML_AT = r" \(at (?:line (\d+), column (\d+)|end of document)\)$"
_DUPLICATE = r"Cannot (?:declare|overwrite|mutate)"
# Opening a pipe must not wait for its writer.
_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)


class Document(Struct, frozen=True):
    """A file's text and data."""

    path: str
    kind: str
    """`toml` or `json`."""
    text: str
    """Without a byte order mark."""
    data: dict[str, Any]
    duplicates: tuple[tuple[Path, int], ...] = ()
    """Repeated keys of JSON objects, each with its line."""


def open_document(path: str) -> Document:
    """Parse the file at this path; raise ConfigError if that fails."""
    return parse(path, as_text(path, read_bytes(path)))


def read_bytes(path: str) -> bytes:
    """Read a regular file, if `check_owner` accepts it."""
    try:
        with os.fdopen(os.open(path, _READ), "rb", buffering=0) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise ConfigError(
                    f"{path}: not a regular file; give a portico.toml or a client's JSON file"
                )
            check_owner(path, status)
            data = file.read(MAX_SIZE + 1) or b""
    except FileNotFoundError:
        raise ConfigError(
            f"{path}: no such file; create it with `portico servers add NAME COMMAND`"
        ) from None
    except IsADirectoryError:
        raise ConfigError(f"{path}: is a folder; give the file in it") from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigError(f"{path}: cannot be read: {why}") from None
    if len(data) > MAX_SIZE:
        raise ConfigError(f"{path}: larger than 4 MB, the limit for a config; give another file")
    return data


def as_text(path: str, data: bytes) -> str:
    """Decode a file's bytes."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}:{line}: not UTF-8 text; save it as UTF-8") from None


def parse(path: str, text: str) -> Document:
    """Parse text as JSON or TOML, by the file's extension or first character."""
    text = text.removeprefix(_BOM)
    kind = _kind(path, text)
    try:
        data, duplicates = _json(path, text) if kind == "json" else (_toml(path, text), ())
    except RecursionError:
        raise ConfigError(f"{path}: nested too deeply") from None
    if not isinstance(data, dict):
        raise ConfigError(f"{path}:1: must contain an object with mcpServers")
    return Document(path, kind, text, data, duplicates)


def _kind(path: str, text: str) -> str:
    if path.endswith((".json", ".jsonc")):
        return "json"
    if path.endswith(".toml"):
        return "toml"
    from portico.core.documents.jsonc import gap

    return "json" if text.startswith("{", gap(text, 0)) else "toml"


def _toml(path: str, text: str) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        what = str(error)
        at = re.search(_TOML_AT, what)
        line, column = (at[1], at[2]) if at and at[1] else (str(text.count("\n") + 1), "")
        why = re.sub(_TOML_AT, "", what)
        if re.match(_DUPLICATE, why):
            # The parser does not always name the key, but the line does.
            named = ".".join(re.findall(r"'([^']*)'", why))
            key = named or text.split("\n")[int(line) - 1].partition("=")[0].strip()[:60]
            raise ConfigError(
                f"{path}:{line}: {key}: is set twice; rename or remove one of them"
            ) from None
        where = f"{line}:{column}" if column else line
        raise ConfigError(f"{path}:{where}: not valid TOML: {_lower(why)}") from None
    except ValueError:  # beyond Python's limits, such as a number with thousands of digits
        raise ConfigError(f"{path}: contains an invalid number or date") from None


def _json(path: str, text: str) -> tuple[Any, tuple[tuple[Path, int], ...]]:
    import json

    from portico.core.documents.jsonc import plain

    has_duplicates = False

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal has_duplicates
        made = dict(found)
        has_duplicates = has_duplicates or len(made) < len(found)
        return made

    try:
        data = json.loads(plain(text), object_pairs_hook=pairs)
    except json.JSONDecodeError as error:
        raise ConfigError(
            f"{path}:{error.lineno}:{error.colno}: not valid JSON: {_lower(error.msg)}"
        ) from None
    except ValueError:
        raise ConfigError(f"{path}: contains a number with too many digits") from None
    if not has_duplicates:
        return data, ()
    from portico.core.documents.places import last_duplicates, places

    again = last_duplicates(places(text, "json"))
    return data, tuple((place.path, text.count("\n", 0, place.start) + 1) for place in again)


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
