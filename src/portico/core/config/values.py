"""Readers of config values: each returns the value, or `BAD` with a problem that hides it."""

import re
from collections.abc import Callable, Iterable, Mapping
from types import NoneType
from typing import Any, Final

from msgspec import Struct

from portico.core.documents.problems import Path, Report, dotted, quoted, suggestion

BAD: Final = object()
"""An invalid value."""
RESTART: Final = object()
"""Follows the reader of a key that a running gateway does not apply."""

Reader = Callable[[Report, Path, Any], Any]
"""Checks one value and returns it; if it is invalid, adds a problem and returns BAD."""

_MAX_NUMBER = 1e9
_KINDS = (
    (NoneType, "null"),
    (bool, "true or false"),
    (int | float, "a number"),
    (str, "a string"),
    (list, "a list"),
    (dict, "a table"),
)
# Compiled only when needed, to keep startup fast.
_ADDRESS = r"(?a:(?:(?:\[[0-9A-Fa-f:.%]+\]|[^\s:\[\]/]+):)?(\d{1,5}))"
_URL = r"(?i:https?://[^\s/])"


def text(report: Report, at: Path, value: Any) -> Any:
    """A string without NUL or unpaired surrogates."""
    if not isinstance(value, str):
        return _wrong_type(report, at, "a string", value)
    if "\0" in value:
        report.wrong(at, "contains a NUL character", "remove it")
        return BAD
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            report.wrong(
                at, "contains an unpaired surrogate", "replace it with the whole character"
            )
            return BAD
    return value


def non_empty(report: Report, at: Path, value: Any) -> Any:
    """A string that is not blank."""
    found = text(report, at, value)
    if found is not BAD and not found.strip():
        report.wrong(at, "is empty", "set a value or remove the key")
        return BAD
    return found


def texts(report: Report, at: Path, value: Any) -> Any:
    """A list of strings."""
    if not isinstance(value, list):
        return _wrong_type(report, at, "a list of strings", value)
    found = [text(report, (*at, number), one) for number, one in enumerate(value)]
    # Bad items are reported; the others are still used for further checks.
    return tuple("" if one is BAD else one for one in found)


def pairs(report: Report, at: Path, value: Any) -> Any:
    """A table of strings."""
    if not isinstance(value, dict):
        return _wrong_type(report, at, "a table of strings", value)
    found = {key: text(report, (*at, key), one) for key, one in value.items()}
    return {key: "" if one is BAD else one for key, one in found.items()}


def any_table(report: Report, at: Path, value: Any) -> Any:
    """A table with any keys."""
    return value if isinstance(value, dict) else _wrong_type(report, at, "a table", value)


def any_value(report: Report, at: Path, value: Any) -> Any:
    """A value that is checked elsewhere."""
    return value


def table_list(report: Report, at: Path, value: Any) -> list[Any]:
    """The tables of `[[at]]`, each still unchecked."""
    if isinstance(value, list):
        return value
    _wrong_type(report, at, f"a list of tables, [[{dotted(at)}]]", value)
    return []


def flag(report: Report, at: Path, value: Any) -> Any:
    """True or false."""
    return value if isinstance(value, bool) else _wrong_type(report, at, "true or false", value)


def integer(minimum: int, maximum: int | None = None) -> Reader:
    """An integer within bounds."""

    def reader(report: Report, at: Path, value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, int):
            return _wrong_type(report, at, "a whole number", value)
        if value < minimum or (maximum is not None and value > maximum):
            bounds = f"at least {minimum}" if maximum is None else f"{minimum} to {maximum}"
            report.wrong(at, f"must be {bounds}")
            return BAD
        return value

    return reader


def number(*, or_none: bool = False) -> Reader:
    """A finite number above 0; `or_none` allows 0 itself."""

    def reader(report: Report, at: Path, value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return _wrong_type(report, at, "a number", value)
        if not (0 <= value <= _MAX_NUMBER) or (value == 0 and not or_none):
            expected = "at least 0" if or_none else "more than 0"
            report.wrong(at, f"must be {expected} and at most 1e9")
            return BAD
        return float(value)

    return reader


def choice(*options: str) -> Reader:
    """One of the given options."""

    def reader(report: Report, at: Path, value: Any) -> Any:
        if not isinstance(value, str):
            return _wrong_type(report, at, "a string", value)
        if value not in options:
            hint = suggestion(value, options)
            remedy = hint if hint.startswith("did") else "use one of them"
            report.wrong(at, f"{quoted(value)} is not one of {', '.join(options)}", remedy)
            return BAD
        return value

    return reader


def address(report: Report, at: Path, value: Any) -> Any:
    """`[HOST:]PORT`."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        return _wrong_type(report, at, "a string", value)
    match = re.fullmatch(_ADDRESS, value)
    if value and (match is None or int(match[1]) > 65535):
        report.wrong(at, "is not an address", 'use PORT, "HOST:PORT" or "[IPV6]:PORT"')
        return BAD
    return value


def check_url(report: Report, at: Path, value: str) -> bool:
    """True if this is an HTTP or HTTPS URL; otherwise add a problem."""
    if re.match(_URL, value):
        return True
    if "://" in value:
        report.wrong(at, "is not an http:// or https:// URL", "other schemes are not supported")
    else:
        report.wrong(at, "the URL has no scheme", "start it with https://")
    return False


def table(known: Mapping[str, Reader]) -> Reader:
    """A table in which unknown keys are errors."""

    def reader(report: Report, at: Path, value: Any) -> Any:
        return read_table(report, at, value, known)

    return reader


def grants_table(report: Report, at: Path, value: Any) -> Any:
    """A table of grants, as pairs of a key and a line, which are parsed with their component."""
    from portico.core.config.component_grants import GRANT_KEYS, grant_lines

    known = dict.fromkeys(GRANT_KEYS, any_value)
    found: list[tuple[str, str]] = []
    for key, one in read_table(report, at, value, known).items():
        lines = grant_lines(key, one)
        if lines is None:
            _wrong_type(report, (*at, key), "a string or a list of strings", one)
        else:
            found += [(key, line) for line in lines]
    return found


def readers(kind: type[Struct]) -> dict[str, Reader]:
    """The reader of each key of a table, from the annotations of its struct."""
    return {key: found[0] for key, found in _metadata(kind).items()}


def restart_keys(kind: type[Struct]) -> list[str]:
    """The keys of a table that take effect only after a restart."""
    return [key for key, found in _metadata(kind).items() if RESTART in found]


def _metadata(kind: type[Struct]) -> dict[str, tuple[Any, ...]]:
    kinds = [one for one in reversed(kind.__mro__) if "__annotations__" in vars(one)]
    hints = {key: hint for one in kinds for key, hint in one.__annotations__.items()}
    return {key: hint.__metadata__ for key, hint in hints.items() if hasattr(hint, "__metadata__")}


def read_table(
    report: Report, at: Path, value: Any, known: Mapping[str, Reader], *, lenient: bool = False
) -> dict[str, Any]:
    """The valid values of a table; an unknown key is an error, or a warning if lenient."""
    if not isinstance(value, dict):
        _wrong_type(report, at, "a table", value)
        return {}
    found = {}
    for key, one in value.items():
        reader = known.get(key)
        if reader is not None:
            good = reader(report, (*at, key), one)
            if good is not BAD:
                found[key] = good
        elif lenient:
            report.warn((*at, key), "unknown key, ignored")
        else:
            report_unknown(report, at, key, known)
    return found


DELETED: dict[tuple[str, str], str] = {}
"""The keys that a release has deleted, by table and key, and what to do instead. Each stays here
for two minor releases (docs/write/stability.md)."""


def report_unknown(report: Report, at: Path, key: str, known: Iterable[str]) -> None:
    """Report a key that is not read: a warning if it was deleted lately, else an error."""
    remedy = DELETED.get((str(at[0]) if at else "", key))
    if remedy is None:
        report.wrong((*at, key), "unknown key", report.suggest(key, known))
    else:
        report.warn((*at, key), "is no longer used, ignored", remedy)


def _wrong_type(report: Report, at: Path, expected: str, value: Any) -> Any:
    plain = expected == "a string" and not isinstance(value, list | dict | None)
    remedy = "put it in quotes" if plain else ""
    report.wrong(at, f"must be {expected}, not {_kind(value)}", remedy)
    return BAD


def _kind(value: Any) -> str:
    return next((name for kind, name in _KINDS if isinstance(value, kind)), "a date or time")
