"""Reads a server.json of the MCP registry: packages to run, and remote endpoints."""

import re
from collections.abc import Iterator
from typing import Any

from msgspec import Struct, field

from portico.commands.published.settings import (
    PublishedError,
    Setting,
    Values,
    default_of,
    filled,
    rows,
    table,
    text,
)
from portico.core.documents.problems import quoted

_REFERENCE = re.compile(r"\{([^{}]+)\}")
_IDENTIFIER = re.compile(r"[A-Za-z0-9@][\w@./:+~-]*", re.ASCII)
_VERSION = re.compile(r"[A-Za-z0-9][\w.+!-]*", re.ASCII)
_SHA256 = re.compile("[0-9a-f]{64}")
_RUNTIMES = {"npm": "npx", "pypi": "uvx", "nuget": "dnx", "oci": "docker"}
_REMOTES = {"streamable-http": "http", "sse": "sse"}
REMOTE, BUNDLE = "remote", "mcpb"
KINDS = (*_RUNTIMES, BUNDLE, REMOTE)


class Way(Struct, frozen=True, kw_only=True):
    """One way to reach a published server: a package to run, a bundle, or a remote endpoint."""

    kind: str
    title: str
    settings: tuple[Setting, ...] = ()
    bundle_url: str = ""
    sha256: str = ""
    about: dict[str, Any] = field(default_factory=dict)

    def entry(self, given: Values) -> dict[str, Any]:
        """Return the config entry with these values; raises PublishedError."""
        defaults = {one.key: one.default for one in self.settings}
        if self.kind == REMOTE:
            kind = _REMOTES[self.about["type"]]
            found = filled(self.about["url"], _REFERENCE, defaults, given)
            headers = _pairs("headers", self.about, defaults, given)
            return {"url": found, "type": kind, **({"headers": headers} if headers else {})}
        env = _pairs("environmentVariables", self.about, defaults, given)
        argv = _argv(self.kind, self.about, list(env), defaults, given)
        return {"command": argv[0], "args": argv[1:], **({"env": env} if env else {})}


def ways_in(data: Any) -> list[Way]:
    """Return every way to reach a server that Portico supports.

    Raises PublishedError if the description is wrong, or has none.
    """
    found = table("server.json", data)
    found = table("server", found["server"]) if "server" in found else found  # as the API wraps it
    name = text("name", found.get("name"))
    version = text("version", found.get("version"), default="")
    title = f"{name} {version}".strip()
    packages = rows("packages", found.get("packages"))
    remotes = rows("remotes", found.get("remotes"))
    if not packages and not remotes:
        raise PublishedError(f"{quoted(name)} has neither packages nor remotes")
    ways: list[Way] = []
    other: list[str] = []
    for number, package in enumerate(packages):
        kind = text(f"packages[{number}].registryType", package.get("registryType"))
        transport = table("transport", package.get("transport")).get("type", "stdio")
        if kind not in KINDS or kind == REMOTE or transport != "stdio":
            other.append(f"{kind} over {transport}")
            continue
        ways.append(_package(f"packages[{number}]", kind, title, package))
    for number, remote in enumerate(remotes):
        kind = text(f"remotes[{number}].type", remote.get("type"))
        if kind not in _REMOTES:
            other.append(f"remote over {kind}")
            continue
        at = f"remotes[{number}]"
        text(f"{at}.url", remote.get("url"))
        settings = [*_variables(at, remote), *_inputs(f"{at}.headers", remote.get("headers"))]
        ways.append(Way(kind=REMOTE, title=title, settings=_once(at, settings), about=remote))
    if not ways:
        shown = quoted(", ".join(dict.fromkeys(other)))
        raise PublishedError(
            f"{quoted(name)} can only be reached by {shown}; Portico supports {', '.join(KINDS)}"
        )
    return ways


def _package(at: str, kind: str, title: str, package: dict[str, Any]) -> Way:
    identifier = text(f"{at}.identifier", package.get("identifier"))
    if kind == BUNDLE:
        sha256 = text(f"{at}.fileSha256", package.get("fileSha256"))
        if not _SHA256.fullmatch(sha256):
            raise PublishedError(f"{at}.fileSha256 must be 64 hexadecimal digits")
        return Way(kind=kind, title=title, bundle_url=identifier, sha256=sha256)
    if not _IDENTIFIER.fullmatch(identifier):
        raise PublishedError(f"{at}.identifier {quoted(identifier)} is not the name of a package")
    version = text(f"{at}.version", package.get("version"), default="")
    if version and not _VERSION.fullmatch(version):
        raise PublishedError(f"{at}.version {quoted(version)} is not a version")
    hint = text(f"{at}.runtimeHint", package.get("runtimeHint"), default="")
    if hint not in ("", _RUNTIMES[kind]):
        raise PublishedError(
            f"{at}.runtimeHint {quoted(hint)} is not supported for {kind}; "
            f"Portico runs it with {_RUNTIMES[kind]}"
        )
    settings = [
        *_inputs(f"{at}.runtimeArguments", package.get("runtimeArguments")),
        *_inputs(f"{at}.packageArguments", package.get("packageArguments")),
        *_inputs(f"{at}.environmentVariables", package.get("environmentVariables"), is_env=True),
    ]
    return Way(kind=kind, title=title, settings=_once(at, settings), about=package)


def _inputs(at: str, value: Any, *, is_env: bool = False) -> Iterator[Setting]:
    """The settings of arguments, variables or headers: those without a fixed value."""
    for number, one in enumerate(rows(at, value)):
        where = f"{at}[{number}]"
        key = _key(at.rpartition(".")[2], number, one)
        if one.get("value") is None:
            yield _setting(where, key, one, variable=key if is_env and key.isidentifier() else "")
        else:
            text(f"{where}.value", one["value"], default="")
            yield from _variables(where, one)


def _variables(at: str, one: dict[str, Any]) -> Iterator[Setting]:
    for key, about in table(f"{at}.variables", one.get("variables")).items():
        where = f"{at}.variables.{quoted(key)}"
        found = _setting(where, key, table(where, about))
        fixed = default_of(where, table(where, about).get("value"))
        yield found if not fixed else Setting(key=key, default=fixed)


def _setting(at: str, key: str, one: dict[str, Any], variable: str = "") -> Setting:
    kind = text(f"{at}.format", one.get("format"), default="string")
    choices = one.get("choices") or ()
    if not isinstance(choices, list | tuple):
        raise PublishedError(f"{at}.choices must be an array")
    return Setting(
        key=key,
        title=text(f"{at}.description", one.get("description"), default=""),
        kind={"filepath": "file"}.get(kind, kind),
        is_required=one.get("isRequired") is True,
        is_secret=one.get("isSecret") is True,
        is_list=one.get("isRepeated") is True,
        default=default_of(at, one.get("default")),
        choices=tuple(text(f"{at}.choices", choice) for choice in choices),
        variable=variable,
    )


def _key(within: str, number: int, one: dict[str, Any]) -> str:
    """The name by which a person sets a value; that of an option is without its dashes."""
    if one.get("type") == "positional" and one.get("name") is None:
        hint = text(f"{within}[{number}].valueHint", one.get("valueHint"), default="")
        return hint or f"{within}[{number}]"
    name = text(f"{within}[{number}].name", one.get("name"))
    return name.lstrip("-") or name


def _once(at: str, settings: list[Setting]) -> tuple[Setting, ...]:
    keys = [one.key for one in settings]
    for one in settings:
        if keys.count(one.key) > 1:
            raise PublishedError(f"{at}: {quoted(one.key)} is set twice")
    return tuple(settings)


def _argv(
    kind: str, package: dict[str, Any], env: list[str], defaults: Values, given: Values
) -> list[str]:
    runtime = _arguments("runtimeArguments", package, defaults, given)
    words = _arguments("packageArguments", package, defaults, given)
    name, version = package["identifier"], package.get("version") or ""
    if kind == "oci":
        passed = [word for one in env for word in ("-e", one)]
        image = f"{name}:{version}" if version and not _has_tag(name) else name
        options = runtime[1:] if runtime[:1] == ["run"] else runtime
        return ["docker", "run", "-i", "--rm", *passed, *options, image, *words]
    pinned = f"{name}@{version}" if version else name
    if kind == "nuget":  # dnx reads all words before `--` as its own options
        return ["dnx", pinned, "--yes", *runtime, *(["--", *words] if words else [])]
    if kind == "npm" and not {"-y", "--yes"} & {*runtime}:
        runtime = ["-y", *runtime]
    return [_RUNTIMES[kind], *runtime, pinned, *words]


def _has_tag(image: str) -> bool:
    return "@" in image or ":" in image.rpartition("/")[2]


def _arguments(key: str, package: dict[str, Any], defaults: Values, given: Values) -> list[str]:
    words: list[str] = []
    for number, one in enumerate(rows(key, package.get(key))):
        kind = one.get("type")
        if kind not in ("positional", "named"):
            raise PublishedError(f"{key}[{number}].type must be positional or named")
        for value in _values(key, number, one, defaults, given):
            # An option without a value is a flag.
            words += [one["name"], *([value] if value else [])] if kind == "named" else [value]
    return words


def _pairs(key: str, about: dict[str, Any], defaults: Values, given: Values) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, one in enumerate(rows(key, about.get(key))):
        values = _values(key, number, one, defaults, given)
        if values:
            found[one["name"]] = ",".join(values)
    return found


def _values(
    key: str, number: int, one: dict[str, Any], defaults: Values, given: Values
) -> list[str]:
    """The values of an argument: its fixed one, those of a person, or its default."""
    if one.get("value") is not None:
        found = filled(one["value"], _REFERENCE, defaults, given)
        return [] if found is None else [found]
    name = _key(key, number, one)
    if given.get(name):
        return list(given[name])
    kept = (filled(value, _REFERENCE, {}, {}) for value in defaults[name])
    return [value for value in kept if value is not None]
