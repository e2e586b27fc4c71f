"""Servers as other clients' files have them: their keys read, and turned into ours."""

from collections.abc import Callable
from typing import Any

from portico.config.problems import Path, Report, word
from portico.config.tables import SERVER
from portico.config.values import (
    BAD,
    Reader,
    anything,
    flag,
    number,
    pairs,
    read_table,
    text,
    texts,
)

_TYPES = {
    "stdio": "stdio",
    "local": "stdio",
    "http": "http",
    "streamable-http": "http",
    "streamableHttp": "http",
    "streamable_http": "http",
    "sse": "sse",
    "remote": "",
    "": "",
}
_ALLOW = ("includeTools", "enabled_tools", "enabledTools", "allowedTools")
_DENY = ("excludeTools", "disabled_tools", "disabledTools")
_SECONDS = {"startup_timeout_sec": "init", "tool_timeout_sec": "call"}
_IGNORED = """
    alwaysAllow autoApprove autoStart default_tools_approval_mode dev gallery icon id name note
    required settings source supports_parallel_tool_calls trust version watchPaths
"""
"""What only the client itself has use for."""
_FASTEST_MS = 1000
"""Nobody gives a server less than a second: a smaller number is one of seconds."""

Folded = tuple[dict[str, Any], dict[str, str]]
"""An entry with our keys, and how those that the client calls otherwise are called there."""


def read_entry(report: Report, at: Path, entry: Any) -> Folded:
    """What a client's entry says, in our words; keys that we do not know are warnings."""
    found = read_table(report, at, entry, _KNOWN, lenient=True)
    names: dict[str, str] = {}
    for key in [key for key in found if key in _FOLDS]:
        value = found.pop(key)
        ours = _FOLDS[key](found, value)
        names.setdefault(ours, key)
    for key in _IGNORED.split():
        found.pop(key, None)
    return found, names


# Readers of what clients write more freely than we do.


def _command(report: Report, at: Path, value: Any) -> Any:
    """A program, a list that begins with one, or a table of all about it."""
    if isinstance(value, dict):
        found = read_table(report, at, value, _PROGRAM, lenient=True)
        if "path" not in value:
            report.wrong(at, "it has no path", "add the program as path")
        return found if "path" in found else BAD
    if not isinstance(value, list):
        return SERVER["command"](report, at, value)
    found = texts(report, at, value)
    if not (found and found[0].strip()):
        report.wrong(at, "it is empty", "fill it in or remove it")
        return BAD
    return found


def _loose_pairs(report: Report, at: Path, value: Any) -> Any:
    """A table of strings, where numbers and truth values stand for themselves."""
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
        report.wrong(at, f"{word(value)} is no transport we know", "write stdio, http or sse")
        return BAD
    return text(report, at, value)


def _auth(report: Report, at: Path, value: Any) -> Any:
    """A table of ours; a word is another client's way to log in."""
    if isinstance(value, str):
        report.warn(at, "there is no logging in yet", "send a token in headers")
        return BAD
    return SERVER["auth"](report, at, value)


def _tools(report: Report, at: Path, value: Any) -> Any:
    """A filter of ours, or a list of what is allowed."""
    if isinstance(value, list):
        return {"allow": texts(report, at, value)}
    return SERVER["tools"](report, at, value)


def _or_null(reader: Reader) -> Reader:
    """Some clients write null for what is not given."""

    def read(report: Report, at: Path, value: Any) -> Any:
        return BAD if value is None else reader(report, at, value)

    return read


# What becomes of the keys that we call otherwise; each gives the name that we have for it.


def _url(found: dict[str, Any], value: str) -> str:
    found["url"] = value
    return "url"


def _transport(found: dict[str, Any], value: str) -> str:
    found.setdefault("type", value)
    return "type"


def _http_url(found: dict[str, Any], value: str) -> str:
    found["type"] = "http"
    return _url(found, value)


def _argv(found: dict[str, Any], value: Any) -> str:
    if isinstance(value, dict):
        _environment(found, value.get("env", {}))
        value = (value["path"], *value.get("args", ()))
    if isinstance(value, tuple):
        found["args"] = (*value[1:], *found.get("args", ()))
        value = value[0]
    found["command"] = value
    return "command"


def _disabled(found: dict[str, Any], value: bool) -> str:
    found["enabled"] = not value and found.get("enabled", True)
    return "enabled"


def _active(found: dict[str, Any], value: bool) -> str:
    found["enabled"] = value and found.get("enabled", True)
    return "enabled"


def _environment(found: dict[str, Any], value: dict[str, str]) -> str:
    found["env"] = {**found.get("env", {}), **value}
    return "env"


def _headers(found: dict[str, Any], value: dict[str, str]) -> str:
    found["headers"] = {**found.get("headers", {}), **value}
    return "headers"


def _headers_of_variables(found: dict[str, Any], value: dict[str, str]) -> str:
    return _headers(found, {name: f"${{{variable}}}" for name, variable in value.items()})


def _bearer(found: dict[str, Any], value: str) -> str:
    return _headers(found, {"Authorization": f"Bearer ${{{value}}}"})


def _filter(key: str) -> Callable[[dict[str, Any], tuple[str, ...]], str]:
    def fold(found: dict[str, Any], value: tuple[str, ...]) -> str:
        tools = found.get("tools", {})
        found["tools"] = {**tools, key: (*tools.get(key, ()), *value)}
        return "tools"

    return fold


def _timeout(key: str) -> Callable[[dict[str, Any], float], str]:
    def fold(found: dict[str, Any], value: float) -> str:
        found["timeouts"] = {**found.get("timeouts", {}), key: value}
        return "timeouts"

    return fold


def _milliseconds(found: dict[str, Any], value: float) -> str:
    return _timeout("call")(found, value if value < _FASTEST_MS else value / 1000)


_FOLDS: dict[str, Callable[[dict[str, Any], Any], str]] = {
    "command": _argv,
    "serverUrl": _url,
    "httpUrl": _http_url,
    "transport": _transport,
    "transportType": _transport,
    "disabled": _disabled,
    "isActive": _active,
    "environment": _environment,
    "http_headers": _headers,
    "env_http_headers": _headers_of_variables,
    "bearer_token_env_var": _bearer,
    "timeout": _milliseconds,
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
    **dict.fromkeys(_IGNORED.split(), anything),
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
