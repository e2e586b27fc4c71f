"""The `auth` table of a server, and the defaults of all servers in `[auth]`."""

import os
import re
from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Struct

from portico.core.config.expand import is_elsewhere
from portico.core.config.values import (
    BAD,
    any_table,
    check_url,
    choice,
    flag,
    integer,
    non_empty,
    read_table,
    readers,
    texts,
)
from portico.core.documents.problems import Path, Report, dotted

CODE, MACHINE = "authorization_code", "client_credentials"
"""The grants: of a person, and of a machine."""
_HEADER = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_SECRETS = ("client_id", "client_secret", "private_key")
_PEM = "-----BEGIN"
_OF_ONE_SERVER = (
    "client_id",
    "client_secret",
    "private_key",
    "private_key_id",
    "issuer",
    "key",
    "scopes",
)
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
    grant: Annotated[str, choice(CODE, MACHINE)] = CODE
    """A person logs in, or this machine does with a secret or a key of its own."""
    private_key: Annotated[str, non_empty] = ""
    """The file of the key that signs the assertions of this machine."""
    private_key_id: Annotated[str, non_empty] = ""
    """The id of that key at the authorization server, if it has several."""
    links: Annotated[bool, flag] = True
    """Clients that can show a page get the link to a login in their call."""
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


def check_misplaced(report: Report, at: Path, entry: Any) -> Any:
    """Report the secrets of a login that are beside the `auth` table; return the other keys."""
    if not isinstance(entry, dict):
        return entry
    headers = entry.get("headers")
    for key in headers if isinstance(headers, dict) else ():
        if key.lower().replace("-", "_") in _SECRETS:
            remedy = f"move it to {dotted((*at, 'auth'))}"
            report.wrong((*at, "headers", key), "would be sent to the server itself", remedy)
    for key in _SECRETS:
        if key in entry:
            remedy = f"move it to {dotted((*at, 'auth'))}"
            report.wrong((*at, key), "belongs to the login", remedy)
    return {key: one for key, one in entry.items() if key not in _SECRETS}


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
    _check_secrets(report, at, found)
    if {**defaults, **found}.get("grant") == MACHINE:
        _check_machine(report, at, found)
    elif "private_key" in found:
        remedy = f'add grant = "{MACHINE}"'
        report.wrong((*at, "private_key"), "is for the login of a machine", remedy)
    if "key" in found and not re.fullmatch(_HEADER, found["key"]):
        report.wrong((*at, "key"), "is not a valid header name", 'write a name like "X-Api-Key"')
    return AuthSettings(**{**defaults, **found})


def _check_secrets(report: Report, at: Path, found: Mapping[str, Any]) -> None:
    """A key is in a file of its own, and a secret is not; a variable of either is expanded."""
    if _PEM in found.get("client_secret", ""):
        remedy = "write it to a file of mode 600, and name that in private_key"
        report.wrong((*at, "client_secret"), "is a private key", remedy)
    key = found.get("private_key", "")
    if _PEM in key:
        remedy = "write the key to a file of mode 600, and its path here"
        report.wrong((*at, "private_key"), "must be a path, not the key itself", remedy)
    elif key and not is_elsewhere(key) and not os.path.isabs(os.path.expanduser(key)):
        report.wrong((*at, "private_key"), "is not an absolute path", "begin it with / or ~")


def _check_machine(report: Report, at: Path, found: Mapping[str, Any]) -> None:
    wrong = report.wrong
    # A variable without a value is an empty text, and reported already.
    has_key, has_secret = "private_key" in found, "client_secret" in found
    if "client_id" not in found:
        wrong((*at, "grant"), f"{MACHINE} has no client_id", "add client_id")
    if has_key and has_secret:
        wrong(at, "has both client_secret and private_key", "remove one of them")
    elif not has_key and not has_secret:
        remedy = "add client_secret, or private_key with the path of a key"
        wrong((*at, "grant"), f"{MACHINE} has nothing to log in with", remedy)
    if found.get("key"):
        wrong((*at, "key"), "is for a plain key", f"remove it, or grant = {MACHINE}")


def _check_urls(report: Report, at: Path, found: Mapping[str, Any]) -> None:
    for key in ("issuer", "client_metadata_url"):
        if found.get(key) and not is_elsewhere(found[key]):  # else it is not expanded
            check_url(report, (*at, key), found[key])
