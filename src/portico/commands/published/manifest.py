"""Reads the manifest.json of an .mcpb bundle: its command and its settings."""

import os
import re
import sys
from typing import Any

import msgspec
from msgspec import Struct

from portico.commands.published.settings import (
    PublishedError,
    Setting,
    Values,
    default_of,
    filled,
    table,
    text,
)
from portico.core.documents.problems import quoted

_REFERENCE = re.compile(r"\$\{([^}]*)\}")
_SETTING = "user_config."
_TYPES = ("node", "python", "binary", "uv")
_KINDS = ("string", "number", "boolean", "directory", "file")
_FOLDERS = {"HOME": "", "DESKTOP": "Desktop", "DOCUMENTS": "Documents", "DOWNLOADS": "Downloads"}


class BundleManifest(Struct, frozen=True, kw_only=True):
    """The server in a bundle."""

    title: str
    settings: tuple[Setting, ...]
    about: dict[str, Any]
    """The `mcp_config` for this platform."""

    def entry(self, folder: str, given: Values) -> dict[str, Any]:
        """Return the config entry of the server unpacked into a folder; raises PublishedError."""
        system = _system(folder)
        values = {
            **system,
            **{
                f"{_SETTING}{one.key}": tuple(
                    filled(value, _REFERENCE, system, {}) or "" for value in one.default
                )
                for one in self.settings
            },
        }
        own = {f"{_SETTING}{key}": value for key, value in given.items()}

        def fill(word: str) -> str | None:
            return filled(word, _REFERENCE, values, own)

        args: list[str] = []
        for word in self.about["args"]:
            whole = _REFERENCE.fullmatch(word)
            many = {**values, **own}.get(whole[1]) if whole is not None else None
            if many is not None and whole is not None and whole[1].startswith(_SETTING):
                args += many  # a list becomes several arguments
            elif (found := fill(word)) is not None:
                args.append(found)
        env = {key: fill(value) for key, value in self.about["env"].items()}
        set_env = {key: value for key, value in env.items() if value is not None}
        command = fill(self.about["command"])
        if not command:
            raise PublishedError("its command is empty")
        more = {"env": set_env} if set_env else {}
        return {"command": command, "args": args, **more, "cwd": folder}


def read_manifest(raw: bytes) -> BundleManifest:
    """Read a manifest; raises PublishedError if it is wrong, or not for this platform."""
    try:
        data = table("manifest.json", msgspec.json.decode(raw))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PublishedError(f"its manifest.json is not valid JSON: {error}") from None
    name = text("name", data.get("name"))
    title = f"{name} {text('version', data.get('version'), default='')}".strip()
    platforms = table("compatibility", data.get("compatibility")).get("platforms")
    if isinstance(platforms, list) and platforms and sys.platform not in platforms:
        shown = quoted(", ".join(map(str, platforms)))
        raise PublishedError(f"{quoted(name)} is for {shown}, not for {sys.platform}")
    server = table("server", data.get("server"))
    kind = text("server.type", server.get("type"))
    if kind not in _TYPES:
        raise PublishedError(f"server.type {quoted(kind)} is not one of {', '.join(_TYPES)}")
    entry_point = text("server.entry_point", server.get("entry_point"), default="")
    return BundleManifest(
        title=title,
        settings=tuple(
            _setting(key, about)
            for key, about in table("user_config", data.get("user_config")).items()
        ),
        about=_command(kind, entry_point, server.get("mcp_config")),
    )


def _command(kind: str, entry_point: str, value: Any) -> dict[str, Any]:
    at = "server.mcp_config"
    if value is None and kind == "uv" and entry_point:  # which need not repeat how uv runs it
        args = ["run", "--directory", "${__dirname}", entry_point]
        return {"command": "uv", "args": args, "env": {}}
    found = table(at, value)
    others = table(f"{at}.platform_overrides", found.get("platform_overrides"))
    here = table(f"{at}.platform_overrides.{sys.platform}", others.get(sys.platform))
    merged = {**found, **{key: one for key, one in here.items() if one}}
    args = merged.get("args") or []
    if not isinstance(args, list):
        raise PublishedError(f"{at}.args must be an array")
    env = table(f"{at}.env", merged.get("env"))
    return {
        "command": text(f"{at}.command", merged.get("command")),
        "args": [text(f"{at}.args", one, default="") for one in args],
        "env": {text(f"{at}.env", key): text(f"{at}.env", one) for key, one in env.items() if one},
    }


def _setting(key: str, about: Any) -> Setting:
    at = f"user_config.{quoted(key)}"
    found = table(at, about)
    kind = text(f"{at}.type", found.get("type"))
    if kind not in _KINDS:
        raise PublishedError(f"{at}.type {quoted(kind)} is not one of {', '.join(_KINDS)}")
    return Setting(
        key=text(at, key),
        title=text(f"{at}.title", found.get("title"), default=""),
        kind=kind,
        is_required=found.get("required") is True,
        is_secret=found.get("sensitive") is True,
        is_list=found.get("multiple") is True,
        default=default_of(at, found.get("default")),
    )


def _system(folder: str) -> dict[str, tuple[str, ...]]:
    """The variables that every manifest may use."""
    home = os.path.expanduser("~")
    folders = {name: (os.path.join(home, below).rstrip("/"),) for name, below in _FOLDERS.items()}
    separator = {"pathSeparator": (os.sep,), "/": (os.sep,)}
    return {"__dirname": (folder,), **folders, **separator}
