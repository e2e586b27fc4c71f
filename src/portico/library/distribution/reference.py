"""References to components in a registry: `oci://host/name:tag`, `@digest`, `ns:name@version`."""

import re

from msgspec import Struct
from msgspec.structs import replace

from portico.library.distribution.distribution_error import InvalidReference

SCHEME = "oci://"
DEFAULT_TAG = "latest"
MAX_TAG = 128
MAX_NAME = 255
_HOST = re.compile(
    r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?"
)
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_NAME = re.compile(rf"{_PART}(?:/{_PART})*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_PACKAGE = re.compile(rf"({_PART}):({_PART})(?:@([^@/:\s]+))?")
_SHOWN = 80


class OciReference(Struct, frozen=True):
    """One component in a registry; it has a tag, a digest or both."""

    host: str
    """Host and port."""
    name: str
    tag: str = ""
    digest: str = ""

    @property
    def selector(self) -> str:
        """The digest, else the tag: the last part of a manifest's URL."""
        return self.digest or self.tag

    @property
    def repository(self) -> str:
        """Host and name, as cosign signs it."""
        return f"{self.host}/{self.name}"

    @property
    def origin(self) -> str:
        """The repository as a reference: the same for all versions."""
        return f"{SCHEME}{self.repository}"

    @property
    def locked_as(self) -> str:
        """The key in the lock file: without the digest."""
        return f"{SCHEME}{self.repository}:{self.tag}" if self.tag else str(self)

    def with_digest(self, digest: str) -> "OciReference":
        """Return the same reference, pinned; raises InvalidReference."""
        return replace(self, digest=checked_digest(digest))

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        digest = f"@{self.digest}" if self.digest else ""
        return f"{SCHEME}{self.repository}{tag}{digest}"


def is_reference(text: str) -> bool:
    """True if a text begins like `oci://`, or has the form `ns:name[@version]`."""
    return text.startswith(SCHEME) or _PACKAGE.fullmatch(text) is not None


def parse_reference(text: str, default_registry: str = "") -> OciReference:
    """Read a reference; `ns:name` is looked up in the default registry, `host[/path]`.

    Raises InvalidReference.
    """
    if text.startswith(SCHEME):
        return _parse_oci(text)
    found = _PACKAGE.fullmatch(text)
    if found is None:
        raise _invalid(text, "it is neither oci://HOST/NAME:TAG nor NS:NAME@VERSION")
    if not default_registry:
        raise _invalid(
            text, "there is no default registry; set default = true in a [registries.NAME] table"
        )
    version = found[3] or DEFAULT_TAG
    return _parse_oci(f"{SCHEME}{default_registry}/{found[1]}/{found[2]}:{version}")


def checked_digest(digest: str) -> str:
    """Return a SHA-256 digest; raises InvalidReference."""
    if not _DIGEST.fullmatch(digest):
        raise InvalidReference(
            f"{_short(digest)!r} is not a digest; write sha256: and 64 hexadecimal digits"
        )
    return digest


def _parse_oci(text: str) -> OciReference:
    rest, at, digest = text.removeprefix(SCHEME).partition("@")
    host, slash, path = rest.partition("/")
    if not slash or not _HOST.fullmatch(host) or not _is_host(host):
        raise _invalid(text, "it names no host; write oci://HOST/NAME:TAG")
    name, colon, tag = path.partition(":")
    if not _NAME.fullmatch(name) or len(name) > MAX_NAME:
        raise _invalid(text, "its name must be of lower-case letters, digits and . _ - /")
    if colon and len(tag) > MAX_TAG:
        raise _invalid(text, f"its tag is longer than {MAX_TAG} characters; use a shorter one")
    if colon and not _TAG.fullmatch(tag):
        raise _invalid(text, "its tag may have letters, digits and . _ - only")
    if at:
        checked_digest(digest)
    return OciReference(host.lower(), name, tag if colon or at else DEFAULT_TAG, digest)


def _is_host(host: str) -> bool:
    """Tell a host from the first part of a path, as Docker does."""
    port = host.rpartition(":")[2] if host[-1] != "]" and ":" in host else ""
    if port and int(port) > 65535:
        return False
    return bool(port) or "." in host or host == "localhost" or host.startswith("[")


def _invalid(text: str, why: str) -> InvalidReference:
    return InvalidReference(f"the reference {_short(text)!r} is not valid: {why}")


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
