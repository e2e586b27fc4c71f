"""The `auth` table of a server, and the defaults of all servers in `[auth]`."""

import re
from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Struct

from portico.config.expand import is_elsewhere
from portico.config.problems import Path, Report
from portico.config.values import (
    BAD,
    any_table,
    check_url,
    choice,
    integer,
    non_empty,
    read_table,
    readers,
    texts,
)

_HEADER = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_OF_ONE_SERVER = ("client_id", "client_secret", "issuer", "key", "scopes")
"""Keys without a default: a secret must not reach whichever server is added later."""


class AuthSettings(Struct, frozen=True, kw_only=True):
    """The settings of a login; by default, the server's own metadata."""

    client_id: Annotated[str, non_empty] = ""
    """A client that is registered by hand; empty to register one."""
    client_secret: Annotated[str, non_empty] = ""
    client_metadata_url: Annotated[str, non_empty] = ""
    """The URL of a client id metadata document, for issuers that accept one."""
    issuer: Annotated[str, non_empty] = ""
    """The authorization server; empty for the one that the server names."""
    scopes: Annotated[tuple[str, ...], texts] = ()
    """Empty for those that the server requests."""
    redirect_port: Annotated[int, integer(1, 65535)] = 0
    """The port of this machine at which the browser ends; 0 for any."""
    grant: Annotated[str, choice("authorization_code")] = "authorization_code"
    key: Annotated[str, non_empty] = ""
    """The header that `login --key` fills; empty for a bearer token."""

    def __repr__(self) -> str:
        return f"AuthSettings(issuer={self.issuer!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("issuer", self.issuer)]


AUTH = readers(AuthSettings)
DEFAULTS = {key: reader for key, reader in AUTH.items() if key not in _OF_ONE_SERVER}


def auth_table(report: Report, at: Path, value: Any) -> Any:
    """The `auth` table of a server, unexpanded: an unknown key is an error."""
    if any_table(report, at, value) is BAD:
        return BAD
    return read_table(report, at, value, AUTH)


def default_settings(report: Report, value: Any) -> dict[str, Any]:
    """The `[auth]` table: defaults of all servers."""
    at: Path = ("auth",)
    if isinstance(value, dict):
        for key in _OF_ONE_SERVER:
            if key in value:
                report.wrong(
                    (*at, key), "belongs to one server", f"move it to servers.NAME.{at[0]}"
                )
        value = {key: one for key, one in value.items() if key not in _OF_ONE_SERVER}
    found = read_table(report, at, value, DEFAULTS)
    _check_urls(report, at, found)
    return found


def auth_settings(
    report: Report, at: Path, found: Mapping[str, Any], defaults: Mapping[str, Any]
) -> AuthSettings:
    """The settings of a server, with the defaults; adds the problems of its values."""
    _check_urls(report, at, found)
    if found.get("client_secret") and not found.get("client_id"):
        report.wrong((*at, "client_secret"), "has no client_id", "add client_id")
    if "key" in found and not re.fullmatch(_HEADER, found["key"]):
        report.wrong((*at, "key"), "is not a valid header name", 'write a name like "X-Api-Key"')
    return AuthSettings(**{**defaults, **found})


def _check_urls(report: Report, at: Path, found: Mapping[str, Any]) -> None:
    for key in ("issuer", "client_metadata_url"):
        if found.get(key) and not is_elsewhere(found[key]):  # else it is not expanded
            check_url(report, (*at, key), found[key])
