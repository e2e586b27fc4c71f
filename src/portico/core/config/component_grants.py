"""The grants of a sandboxed component, in one grammar for the config, `--grant` and `inspect`.

| grant | meaning |
|---|---|
| `files=DIR`, `DIR:rw`, `DIR:/GUEST:ro` | a folder, read-only or writable, by its path or another |
| `env=NAME`, `env=NAME=VALUE` | an environment variable: yours, or one with this value |
| `http=HOST`, `HOST:PORT`, `*.HOST`, `any` | hosts that it may contact |
| `config=NAME=VALUE`, `secrets=NAME=VALUE` | values that it reads by name |
| `memory=128MB`, `time=30s`, `output=4MB`, `concurrency=4` | limits |
| `tools=PATTERN` | the tools that are shown |
| `questions=elicit`, `questions=sample` | questions to the person, and to the client's model |
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from portico.core.config.expand import Sources
from portico.core.config.paths import cache_folder, config_file, state_folder
from portico.core.model.errors import PorticoError
from portico.core.model.wording import close_matches, did_you_mean, printable

ANY = "any"
"""The grant of all hosts, without checks."""
# Patterns are compiled when they are first used: most configs have no grants.
_SIZE = r"(?i:(\d+(?:\.\d+)?)\s*(KB|MB|GB)?)"
_SIZES = {"KB": 1 / 1024, "MB": 1.0, "GB": 1024.0}
_TIME = r"(?i:(\d+(?:\.\d+)?)\s*(ms|s|m)?)"
_TIMES = {"ms": 0.001, "s": 1.0, "m": 60.0}
_COUNT = r"(\d+)()"
_NAME = r"[A-Za-z_][A-Za-z0-9_.-]*"
_HOST = r"(\*\.)?[a-z0-9]([a-z0-9._-]*[a-z0-9])?(:\d{1,5})?|\[[0-9a-f:.]+\](:\d{1,5})?"


class InvalidGrant(PorticoError):
    """A grant that cannot be given; the message has the grant, the reason and a remedy."""


class MissingFolder(InvalidGrant):
    """A folder is granted that does not exist."""


class GrantedFolder(Struct, frozen=True):
    """A folder that a guest may use."""

    path: str
    guest: str
    """Its path inside the guest."""
    is_writable: bool = False


class GuestLimits(Struct, frozen=True, kw_only=True):
    """The limits of one component."""

    memory_mb: float = 128
    """Of each memory of an instance."""
    time_s: float = 30.0
    """Of one call: the guest's own time, and that of the functions of the host that it calls."""
    output_mb: float = 4.0
    """Of one answer, as JSON."""
    concurrency: int = 4
    """Calls at the same time; others wait."""


class ComponentGrants(Struct, frozen=True, kw_only=True):
    """All that a guest may use beyond computing, and its limits."""

    files: tuple[GrantedFolder, ...] = ()
    env: Mapping[str, str] = {}
    http: tuple[str, ...] = ()
    config: Mapping[str, str] = {}
    secrets: Mapping[str, str] = {}
    tools: tuple[str, ...] = ()
    """Patterns of the tools that are shown; empty shows all."""
    elicit: bool = False
    """True if it may ask the person in front of the client."""
    sample: bool = False
    """True if it may use the client's model."""
    limits: GuestLimits = GuestLimits()

    def lines(self) -> tuple[str, ...]:
        """Return the grants as they are written, without values that may be secret."""
        found = [f"files={_shown_folder(folder)}" for folder in self.files]
        found += [f"env={name}" for name in self.env]
        found += [f"http={host}" for host in self.http]
        found += [f"config={name}" for name in self.config]
        found += [f"secrets={name}" for name in self.secrets]
        found += [f"tools={pattern}" for pattern in self.tools]
        found += [f"questions={kind}" for kind in _QUESTIONS if getattr(self, kind)]
        limits, usual = self.limits, GuestLimits()
        for key, field, unit in _LIMITS:
            if getattr(limits, field) != getattr(usual, field):
                found.append(f"{key}={getattr(limits, field):g}{unit}")
        return tuple(found)


_QUESTIONS = ("elicit", "sample")
_LIMITS = (
    ("memory", "memory_mb", "MB"),
    ("time", "time_s", "s"),
    ("output", "output_mb", "MB"),
    ("concurrency", "concurrency", ""),
)


def add_grants(
    lines: Iterable[str], sources: Sources, base: ComponentGrants | None = None
) -> ComponentGrants:
    """Return grants with more of them, written as `KEY=VALUE`; raises InvalidGrant.

    References in values (`${VAR}`, `keyring:NAME`, `file:PATH`) are resolved, and raise Unresolved.
    """
    found = base or ComponentGrants()
    for line in lines:
        key, is_set, value = line.partition("=")
        add = _KEYS.get(key)
        if add is None or not is_set:
            near = did_you_mean(close_matches(key, _KEYS)) if add is None else ""
            how = near or f"write KEY=VALUE, with one of {', '.join(_KEYS)}"
            raise InvalidGrant(f"{printable(key)[:80]}: not a grant; {how}")
        found = add(found, value, sources)
    return found


def _files(base: ComponentGrants, value: str, sources: Sources) -> ComponentGrants:
    path, is_writable = value, False
    if value.endswith((":ro", ":rw")):
        path, is_writable = value[:-3], value.endswith(":rw")
    path, colon, guest = path.partition(":/")
    path = sources.path(sources.expand(path))
    if not os.path.isdir(path):
        what = "a file, not a folder" if os.path.exists(path) else "there is no such folder"
        raise MissingFolder(f"files={printable(path)}: {what}; create it, or correct the grant")
    _check_not_ours(path)
    guest = f"/{guest}" if colon else path
    return replace(base, files=(*base.files, GrantedFolder(path, guest, is_writable)))


def _check_not_ours(path: str) -> None:
    """Raise InvalidGrant for a folder with files of Portico's own, such as tokens and logins."""
    real = os.path.realpath(path)
    for own in (state_folder(), cache_folder(), os.path.dirname(config_file())):
        mine = os.path.realpath(own)
        if os.path.commonpath([real, mine]) in (real, mine):
            what = f"files={printable(path)}: holds Portico's own files, in {mine}"
            raise InvalidGrant(f"{what}; grant a folder that does not")


def _env(base: ComponentGrants, value: str, sources: Sources) -> ComponentGrants:
    name, is_set, text = value.partition("=")
    _check_name("env", name)
    text = sources.resolve(text if is_set else f"${{{name}}}")
    return replace(base, env={**base.env, name: text})


def _http(base: ComponentGrants, value: str, sources: Sources) -> ComponentGrants:
    host = value.lower()
    if not re.fullmatch(_HOST, host):
        how = "write a host, host:port, *.host or any, without https://"
        raise InvalidGrant(f"http={printable(value)[:80]}: not a host; {how}")
    return replace(base, http=(*base.http, host))


def _config(base: ComponentGrants, value: str, sources: Sources) -> ComponentGrants:
    return replace(base, config={**base.config, **_pair("config", value, sources)})


def _secrets(base: ComponentGrants, value: str, sources: Sources) -> ComponentGrants:
    return replace(base, secrets={**base.secrets, **_pair("secrets", value, sources)})


def _pair(key: str, value: str, sources: Sources) -> dict[str, str]:
    name, is_set, text = value.partition("=")
    _check_name(key, name)
    if not is_set:
        raise InvalidGrant(f"{key}={name}: has no value; write {key}={name}=VALUE")
    return {name: sources.resolve(text)}


def _check_name(key: str, name: str) -> None:
    if not re.fullmatch(_NAME, name):
        raise InvalidGrant(f"{key}={printable(name)[:80]}: not a valid name; use letters and `_`")


def _tools(base: ComponentGrants, value: str, sources: Sources) -> ComponentGrants:
    if not value:
        raise InvalidGrant("tools=: names no tool; write a name or a pattern, such as get_*")
    return replace(base, tools=(*base.tools, value))


def _questions(base: ComponentGrants, value: str, sources: Sources) -> ComponentGrants:
    if value not in _QUESTIONS:
        raise InvalidGrant(
            f"questions={printable(value)[:40]}: not a question; write elicit or sample"
        )
    return replace(
        base, elicit=base.elicit or value == "elicit", sample=base.sample or value == "sample"
    )


def _memory(base: ComponentGrants, value: str, sources: Sources) -> ComponentGrants:
    size = _measure("memory", value, _SIZE, _SIZES, "MB", 1, 4096)
    return replace(base, limits=replace(base.limits, memory_mb=size))


def _time(base: ComponentGrants, value: str, sources: Sources) -> ComponentGrants:
    seconds = _measure("time", value, _TIME, _TIMES, "s", 0.01, 3600)
    return replace(base, limits=replace(base.limits, time_s=seconds))


def _output(base: ComponentGrants, value: str, sources: Sources) -> ComponentGrants:
    size = _measure("output", value, _SIZE, _SIZES, "MB", 0.001, 14)
    return replace(base, limits=replace(base.limits, output_mb=size))


def _concurrency(base: ComponentGrants, value: str, sources: Sources) -> ComponentGrants:
    count = _measure("concurrency", value, _COUNT, {}, "", 1, 64)
    return replace(base, limits=replace(base.limits, concurrency=int(count)))


def _measure(
    key: str,
    value: str,
    pattern: str,
    units: Mapping[str, float],
    usual: str,
    least: float,
    most: float,
) -> float:
    match = re.fullmatch(pattern, value.strip())
    if match is not None:
        unit = next((one for one in units if one.lower() == (match[2] or usual).lower()), usual)
        number = float(match[1]) * units.get(unit, 1.0)
        if least <= number <= most:
            return number
    how = f"write {least:g}{usual} to {most:g}{usual}"
    raise InvalidGrant(f"{key}={printable(value)[:40]}: not within its limits; {how}")


_KEYS: Mapping[str, Callable[[ComponentGrants, str, Sources], ComponentGrants]] = {
    "files": _files,
    "env": _env,
    "http": _http,
    "config": _config,
    "secrets": _secrets,
    "memory": _memory,
    "time": _time,
    "output": _output,
    "concurrency": _concurrency,
    "tools": _tools,
    "questions": _questions,
}
GRANT_KEYS = tuple(_KEYS)


def grant_lines(key: str, value: Any) -> list[str] | None:
    """Return the lines of one key of a table of grants; None for a value of a wrong type."""
    if isinstance(value, dict) and key in ("env", "config", "secrets"):
        if all(isinstance(one, str) for one in value.values()):
            return [f"{key}={name}={one}" for name, one in value.items()]
        return None
    if isinstance(value, list):
        return [f"{key}={one}" for one in value] if _all_texts(value) else None
    if isinstance(value, str):
        return [f"{key}={value}"]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return [f"{key}={value:g}"] if is_number and key in {one for one, _, _ in _LIMITS} else None


def _all_texts(values: list[Any]) -> bool:
    return all(isinstance(one, str) for one in values)


def _shown_folder(folder: GrantedFolder) -> str:
    under = "" if folder.guest == folder.path else f":{folder.guest}"
    return f"{folder.path}{under}:{'rw' if folder.is_writable else 'ro'}"
