"""Reads server entries of other clients' files and converts their keys to ours."""

from collections.abc import Callable
from typing import Any

from portico.core.config.auth_settings import AUTH
from portico.core.config.schema import SERVER
from portico.core.config.values import BAD, Reader, flag, number, pairs, read_table, text, texts
from portico.core.documents.problems import Path, Report, quoted

_TYPES = {
    **dict.fromkeys(("stdio", "local"), "stdio"),
    **dict.fromkeys(("http", "streamable-http", "streamableHttp", "streamable_http"), "http"),
    "sse": "sse",
    **dict.fromkeys(("remote", ""), ""),
}
_ALLOW = ("includeTools", "enabled_tools", "enabledTools", "allowedTools")
_DENY = ("excludeTools", "disabled_tools", "disabledTools")
_SECONDS = {"startup_timeout_sec": "init", "tool_timeout_sec": "call"}
_IGNORED = """
    autoStart dev gallery icon id name note required settings source
    supports_parallel_tool_calls version watchPaths
"""
"""Keys that matter only to the client itself."""
_APPROVALS = ("alwaysAllow", "autoApprove", "default_tools_approval_mode", "trust")
"""Keys for calls that a client makes without a question."""
_MIN_MS = 1000
"""No timeout is shorter than a second: a smaller number is in seconds."""

Folded = tuple[dict[str, Any], dict[str, str]]
"""An entry with our keys, and the file's name of each key that the client names differently."""


def read_entry(report: Report, at: Path, entry: Any) -> Folded:
    """Convert a client's entry to our keys; unknown keys are warnings."""
    found = read_table(report, at, entry, _KNOWN, lenient=True)
    names: dict[str, str] = {}
    for key in [key for key in found if key in _FOLDS]:
        value = found.pop(key)
        ours, fold = _FOLDS[key]
        found[ours] = fold(found, value)
        names.setdefault(ours, key)
    return found, names


# Readers of values that clients write in more forms than we do.


def _command(report: Report, at: Path, value: Any) -> Any:
    """A program, a list that begins with one, or a table with path, args and env."""
    if isinstance(value, dict):
        found = read_table(report, at, value, _PROGRAM, lenient=True)
        if "path" not in value:
            report.wrong(at, "has no path", "set path to the program")
        return found if "path" in found else BAD
    if not isinstance(value, list):
        return SERVER["command"](report, at, value)
    found = texts(report, at, value)
    if not (found and found[0].strip()):
        report.wrong(at, "is empty", "set a value or remove the key")
        return BAD
    return found


def _loose_pairs(report: Report, at: Path, value: Any) -> Any:
    """A table of strings; numbers and booleans are converted."""
    if isinstance(value, dict):
        value = {key: _as_text(one) for key, one in value.items() if one is not None}
        for key, one in value.items():
            if isinstance(one, str) and one[:1] == "$" and one[1:].isidentifier():
                report.warn((*at, key), "$NAME is not expanded", "write ${NAME}")
    return pairs(report, at, value)


def _as_text(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


def _type(report: Report, at: Path, value: Any) -> Any:
    if isinstance(value, str) and value in _TYPES:
        return _TYPES[value]
    if isinstance(value, str):
        report.wrong(at, f"{quoted(value)} is not a supported transport", "use stdio, http or sse")
        return BAD
    return text(report, at, value)


def _auth(report: Report, at: Path, value: Any) -> Any:
    """Our own table, or that of Cursor, in capitals. A word selects OAuth, which the server itself
    requests."""
    if isinstance(value, str):
        return BAD
    if not isinstance(value, dict):
        return SERVER["auth"](report, at, value)
    lowered = {key.lower() if key.isupper() else key: one for key, one in value.items()}
    return read_table(report, at, lowered, AUTH, lenient=True)


def _tools(report: Report, at: Path, value: Any) -> Any:
    """Our own filter, or a list of allowed tools."""
    if isinstance(value, list):
        return {"allow": texts(report, at, value)}
    return SERVER["tools"](report, at, value)


def _approval(report: Report, at: Path, value: Any) -> Any:
    """Report a permission: the client sees Portico's tools, and decides about those."""
    if value:
        what = "has no effect here: the client sees the tools of Portico, and decides about those"
        report.warn(at, what, "allow execute_read_tool there, which calls read-only tools only")
    return BAD


def _or_null(reader: Reader) -> Reader:
    """Allow null, which some clients write for an absent value."""

    def read(report: Report, at: Path, value: Any) -> Any:
        return BAD if value is None else reader(report, at, value)

    return read


# Conversions of keys that we name differently: our name, and a function from the values read so far
# and the file's value to ours.


_Fold = tuple[str, Callable[[dict[str, Any], Any], Any]]


def _http_url(found: dict[str, Any], value: str) -> str:
    found["type"] = "http"
    return value


def _argv(found: dict[str, Any], value: Any) -> Any:
    if isinstance(value, dict):
        found["env"] = {**found.get("env", {}), **value.get("env", {})}
        value = (value["path"], *value.get("args", ()))
    if isinstance(value, tuple):
        found["args"] = (*value[1:], *found.get("args", ()))
        value = value[0]
    return value


def _more(key: str, made: Callable[[Any], dict[str, Any]] = dict) -> _Fold:
    """Extend a table with pairs made from the file's value."""
    return key, lambda found, value: {**found.get(key, {}), **made(value)}


def _filter(key: str) -> _Fold:
    def fold(found: dict[str, Any], value: tuple[str, ...]) -> dict[str, Any]:
        tools = found.get("tools", {})
        return {**tools, key: (*tools.get(key, ()), *value)}

    return "tools", fold


def _timeout(key: str) -> _Fold:
    return _more("timeouts", lambda value: {key: value})


_TRANSPORT: _Fold = ("type", lambda found, value: found.get("type", value))
_FOLDS: dict[str, _Fold] = {
    "command": ("command", _argv),
    "serverUrl": ("url", lambda _, value: value),
    "httpUrl": ("url", _http_url),
    "transport": _TRANSPORT,
    "transportType": _TRANSPORT,
    "disabled": ("enabled", lambda found, value: not value and found.get("enabled", True)),
    "isActive": ("enabled", lambda found, value: value and found.get("enabled", True)),
    "environment": _more("env"),
    "http_headers": _more("headers"),
    "env_http_headers": _more(
        "headers", lambda value: {name: f"${{{variable}}}" for name, variable in value.items()}
    ),
    "bearer_token_env_var": _more(
        "headers", lambda value: {"Authorization": f"Bearer ${{{value}}}"}
    ),
    "timeout": _more(
        "timeouts", lambda value: {"call": value if value < _MIN_MS else value / 1000}
    ),
    **{key: _filter("allow") for key in _ALLOW},
    **{key: _filter("deny") for key in _DENY},
    **{key: _timeout(ours) for key, ours in _SECONDS.items()},
}

_PROGRAM: dict[str, Reader] = {
    "path": SERVER["command"],
    "args": _or_null(texts),
    "env": _or_null(_loose_pairs),
}
_KNOWN: dict[str, Reader] = {
    **dict.fromkeys(_IGNORED.split(), lambda _report, _at, _value: BAD),
    **dict.fromkeys(_APPROVALS, _approval),
    **{
        key: _or_null(reader)
        for key, reader in {
            **SERVER,
            "command": _command,
            "env": _loose_pairs,
            "type": _type,
            "transport": _type,
            "transportType": _type,
            "auth": _auth,
            "tools": _tools,
            "serverUrl": SERVER["url"],
            "httpUrl": SERVER["url"],
            "disabled": flag,
            "isActive": flag,
            "environment": _loose_pairs,
            "http_headers": pairs,
            "env_http_headers": pairs,
            "bearer_token_env_var": SERVER["url"],
            "timeout": number(),
            **dict.fromkeys((*_ALLOW, *_DENY), texts),
            **dict.fromkeys(_SECONDS, number()),
        }.items()
    },
}
