"""Reads the registries of components, and the keys that may sign what they serve."""

import re
from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Struct, field

from portico.core.config.expand import Sources
from portico.core.config.values import (
    any_value,
    check_url,
    flag,
    non_empty,
    read_table,
    readers,
    texts,
)
from portico.core.documents.names import is_valid_name, valid_name
from portico.core.documents.problems import Path, Report

_PLACE = r"https?://((?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?)((?:/[a-z0-9._-]+)*)/?"
_LOOPBACK = r"(?:localhost|127(?:\.[0-9]{1,3}){3}|\[::1\])(?::[0-9]{1,5})?"


class RegistrySettings(Struct, frozen=True, kw_only=True):
    """One registry of components."""

    url: Annotated[str, non_empty] = ""
    """`https://HOST[:PORT][/PATH]`; the path is the place of `NS:NAME` references."""
    default: Annotated[bool, flag] = False
    """Whether `NS:NAME` references are looked up here."""
    token_hosts: Annotated[tuple[str, ...], texts] = ()
    """Hosts of token services that may get the credentials for this registry."""
    insecure: Annotated[bool, flag] = False
    """Use plain HTTP, on this machine only."""

    @property
    def host(self) -> str:
        """Host and port, as in a reference."""
        return self.place.partition("/")[0]

    @property
    def place(self) -> str:
        """Host, port and path."""
        return self.url.partition("://")[2].rstrip("/").lower()


class TrustedKey(Struct, frozen=True, kw_only=True):
    """A public key, and the components that it may sign."""

    file: Annotated[str, non_empty] = ""
    """The file of the public key; absolute once it is read."""
    signs_for: Annotated[tuple[str, ...], texts] = ()
    """Registries of the config, hosts, and names below them; `*` for all."""
    retired: Annotated[bool, flag] = False
    """It vouches only for digests that are in the lock file already."""


class TrustSettings(Struct, frozen=True, kw_only=True):
    """Which components may be used."""

    keys: Mapping[str, TrustedKey] = field(default_factory=dict)
    unsigned: Annotated[tuple[str, ...], texts] = ()
    """Components that need no signature, written like `signs_for`."""


class Publishing(Struct, frozen=True, kw_only=True):
    """The tables `[registries]` and `[trust]`."""

    registries: Mapping[str, RegistrySettings] = field(default_factory=dict)
    trust: TrustSettings = TrustSettings()

    def registry(self, host: str) -> RegistrySettings:
        """Return the registry of a host; without an entry, it has only its host."""
        found = (one for one in self.registries.values() if one.host == host)
        return next(found, RegistrySettings(url=f"https://{host}"))

    @property
    def default_place(self) -> str:
        """Host and path for `NS:NAME` references; empty without a default."""
        return next((one.place for one in self.registries.values() if one.default), "")


def read_publishing(report: Report, data: Mapping[str, Any], sources: Sources) -> Publishing:
    """Read both tables."""
    registries = _registries(report, data.get("registries", {}))
    trust = data.get("trust", {})
    known = {**readers(TrustSettings), "keys": any_value}
    found = read_table(report, ("trust",), trust, known)
    keys = _keys(report, found.get("keys", {}), sources, registries)
    unsigned = _places(found.get("unsigned", ()), registries)
    return Publishing(registries=registries, trust=TrustSettings(keys=keys, unsigned=unsigned))


def _registries(report: Report, table: Any) -> dict[str, RegistrySettings]:
    if not isinstance(table, dict):
        read_table(report, ("registries",), table, {})
        return {}
    found: dict[str, RegistrySettings] = {}
    for name, value in table.items():
        at: Path = ("registries", name)
        _check_name(report, at, name, "registry")
        one = RegistrySettings(**read_table(report, at, value, readers(RegistrySettings)))
        _check_registry(report, at, one, isinstance(value, dict) and "url" in value)
        found[name] = one
    _check_unique(report, found)
    return found


def _check_registry(report: Report, at: Path, one: RegistrySettings, has_url: bool) -> None:
    if not one.url:
        if not has_url:
            report.wrong(at, "has no url", 'add url = "https://HOST"')
        return
    if not check_url(report, (*at, "url"), one.url):
        return
    place = re.fullmatch(_PLACE, one.url)
    if place is None:
        report.wrong((*at, "url"), "is not the URL of a registry", "write https://HOST[/PATH]")
        return
    is_loopback = re.fullmatch(_LOOPBACK, place[1]) is not None
    if one.insecure and not is_loopback:
        report.wrong((*at, "insecure"), "is only for registries on this machine", "use https")
    elif one.url.startswith("http://") and not one.insecure:
        how = "use https" if not is_loopback else "use https, or set insecure = true"
        report.wrong((*at, "url"), "others could change components on their way", how)


def _check_unique(report: Report, found: Mapping[str, RegistrySettings]) -> None:
    defaults = [name for name, one in found.items() if one.default]
    for name in defaults[1:]:
        what = f"{defaults[0]} is the default already"
        report.wrong(("registries", name, "default"), what, "remove one of them")
    hosts: dict[str, str] = {}
    for name, one in found.items():
        other = hosts.setdefault(one.host, name)
        if other != name and one.host:
            report.wrong(("registries", name, "url"), f"{other} has the same host", "remove one")


def _keys(
    report: Report, table: Any, sources: Sources, registries: Mapping[str, RegistrySettings]
) -> dict[str, TrustedKey]:
    if not isinstance(table, dict):
        read_table(report, ("trust", "keys"), table, {})
        return {}
    found: dict[str, TrustedKey] = {}
    for name, value in table.items():
        at: Path = ("trust", "keys", name)
        _check_name(report, at, name, "key")
        read = read_table(report, at, value, readers(TrustedKey))
        if isinstance(value, dict):
            if "file" not in value:
                report.wrong(at, "has no file", 'add file = "NAME.pub", its public key')
            if not value.get("signs_for"):
                what = "may sign nothing"
                report.wrong(at, what, 'add signs_for = ["HOST/NAME"], or ["*"] for all')
        if "file" in read:
            read["file"] = sources.path(read["file"])
        read["signs_for"] = _places(read.get("signs_for", ()), registries)
        found[name] = TrustedKey(**read)
    return found


def _check_name(report: Report, at: Path, name: str, what: str) -> None:
    if not is_valid_name(name):
        report.wrong(at, f"is not a valid {what} name", f"write {valid_name(name)}")


def _places(given: tuple[str, ...], registries: Mapping[str, RegistrySettings]) -> tuple[str, ...]:
    """Return the hosts and names; the name of a registry becomes its place."""
    return tuple(registries[one].place if one in registries else one for one in given)
