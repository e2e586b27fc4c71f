"""Aliases and profiles in the config: checked, written in place, removed."""

import os
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

from portico.core.config.paths import config_file
from portico.core.config.profiles import cycle_from
from portico.core.config.read import read
from portico.core.config.schema import Config, Profile
from portico.core.documents.edit import EntryChange, changed_entries
from portico.core.documents.names import is_valid_name, valid_name
from portico.core.documents.problems import ConfigError, quoted, suggestion
from portico.core.documents.save import rewrite
from portico.core.state.report import report
from portico.library.components.aliases import ConfigAliases
from portico.library.components.classify import Component, ComponentError, classify, classify_name
from portico.library.components.resolver import is_registry_reference
from portico.library.distribution.reference import parse_reference

_COMMANDS = """
    agents approve call cluster completion components compose delegate describe doctor help import
    init inspect install key logs migrate new profiles pull push run search serve servers status
    stop tasks usage version wrap
"""
RESERVED = frozenset(_COMMANDS.split())
"""The names of commands, which no alias or profile may have."""


class NamesFile:
    """The names in one config file."""

    def __init__(self, path: str | None) -> None:
        self._chosen = path
        self.path = os.path.abspath(path or config_file())

    def config(self) -> Config:
        """Return the config as it is, without secrets; an empty one if there is no file."""
        if not os.path.exists(self.path):
            return Config(path=self.path)
        return read(self.path, only=())

    def add_alias(self, name: str, argument: str) -> Component:
        """Add an alias for a file or a command; raises PorticoError."""
        config = self.config()
        self._check_new(name, config)
        component = classify(argument, ConfigAliases(self._chosen))
        if component.is_alias or argument in config.profiles:
            raise ComponentError(
                f"{argument} is a name of the config already; "
                f"to give it a second name, write `portico profiles add {name} {argument}`"
            )
        if component.url:
            raise ComponentError(
                f"a URL is a server, not a component; write `portico servers add {name} URL`"
            )
        _report_program(name)
        self._write("components", name, _entry(component))
        return component

    def add_reference(self, name: str, argument: str) -> str:
        """Add an alias for a reference to a registry, and return that; raises PorticoError."""
        config = self.config()
        self._check_new(name, config)
        reference = parse_reference(argument, config.publishing.default_place)
        _report_program(name)
        self._write("components", name, {"oci": argument})
        return str(reference)

    def add_profile(self, name: str, members: Sequence[str], base: str) -> Profile:
        """Add a profile of these components; raises PorticoError."""
        config = self.config()
        self._check_new(name, config)
        if base and base not in config.profiles:
            hint = suggestion(base, config.profiles) or "there is none"
            raise ConfigError(f"{self.path}: there is no profile {quoted(base)}; {hint}")
        placed = tuple(self._member(one, name, config) for one in members)
        profile = Profile(base=base, components=placed)
        path = cycle_from(name, {**config.profiles, name: profile})
        if path:
            shown = " -> ".join(path)
            raise ConfigError(f"the profile {name} contains itself: {shown}; leave it out")
        _report_program(name)
        table = {"base": base} if base else {}
        self._write("profiles", name, {**table, "components": list(placed)})
        return profile

    def remove(self, section: str, name: str) -> None:
        """Remove an alias or a profile; raises ConfigError if it is used, or does not exist."""
        config = self.config()
        known: Mapping[str, object] = (
            config.components if section == "components" else config.profiles
        )
        if name not in known:
            what = "component" if section == "components" else "profile"
            hint = suggestion(name, known) or "there is none"
            raise ConfigError(f"{self.path}: there is no {what} {quoted(name)}; {hint}")
        for other, profile in config.profiles.items():
            if other != name and name in (classify_name(one)[1] for one in profile.members):
                raise ConfigError(
                    f"{self.path}: profiles.{other} has {quoted(name)}; remove it there first"
                )
        if section == "components" and name in config.linked:
            raise ConfigError(
                f"{self.path}: gateway.links has {quoted(name)}; remove it there first"
            )
        self._change(EntryChange((section, name)))

    def _check_new(self, name: str, config: Config) -> None:
        if not is_valid_name(name):
            raise ConfigError(f"{quoted(name)} is not a valid name; try {valid_name(name)}")
        if name in RESERVED:
            raise ConfigError(
                f"{name} is the name of a command of Portico; choose another, such as my-{name}"
            )
        kinds = {"server": config.servers, "component": config.components}
        for kind, known in {**kinds, "profile": config.profiles}.items():
            if name in known:
                raise ConfigError(
                    f"{self.path}: there is a {kind} {name} already; "
                    f"remove it first with `portico {kind}s remove {name}`"
                )

    def _member(self, argument: str, profile: str, config: Config) -> str:
        """Return a member as it is written: a name as it is, a file with its whole path."""
        own, rest = classify_name(argument)
        prefix = f"{own}=" if own else ""
        known = (*config.aliases, *config.profiles, profile)
        if rest in known or is_registry_reference(rest):
            return argument
        component = classify(rest, ConfigAliases(self._chosen))
        return prefix + _whole(component) if component.path or component.binary else argument

    def _write(self, section: str, name: str, entry: Mapping[str, Any]) -> None:
        self._change(EntryChange((section, name), dict(entry)))

    def _change(self, change: EntryChange) -> None:
        if self.path.endswith((".json", ".jsonc")):
            raise ConfigError(
                f"{self.path}: a client's file has no components or profiles; use a portico.toml"
            )
        rewrite(self.path, lambda old: changed_entries(self.path, old, lambda _: [change]))


def _entry(component: Component) -> dict[str, Any]:
    if component.path or component.binary:
        return {"path": _whole(component)}
    if os.path.isfile(component.argument):
        return {"path": os.path.abspath(component.argument)}
    command, *args = component.argv
    return {"command": command, "args": args}


def _whole(component: Component) -> str:
    path = os.path.abspath(component.path or component.binary)
    return f"{path}:{component.variable}" if component.variable else path


def _report_program(name: str) -> None:
    """Report a program that the new name hides."""
    found = shutil.which(name)
    if found is not None:
        report(f"{name} now means this, and no longer the program {found}")
