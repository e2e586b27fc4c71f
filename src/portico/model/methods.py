"""One table from (method, version) to its meaning. A missing key *is* the version gate."""

from enum import Enum

from msgspec import Struct

from portico.model.version import LEGACY, MODERN, Version


class Kind(Enum):
    """Who answers a method, and how."""

    STATIC = "from the catalog's ready bytes"
    CORE = "by the core itself"
    CALL = "by the first provider that owns the name"
    NOTICE = "not at all: a notification"


class Meaning(Struct, frozen=True):
    """What a method means at one version."""

    kind: Kind
    capability: str = ""
    """The server capability without which the method does not exist."""
    mirrored: str = ""
    """The params field that modern HTTP mirrors into `Mcp-Name`."""
    rounds: bool = False
    """True if it may be answered with `input_required` (modern only)."""


LISTEN = "subscriptions/listen"
INITIALIZED = "notifications/initialized"
ELICIT, SAMPLE = "elicitation/create", "sampling/createMessage"

_ALL = tuple(Version)

_ROWS: tuple[tuple[str, tuple[Version, ...], Meaning], ...] = (
    ("initialize", LEGACY, Meaning(Kind.CORE)),
    ("ping", LEGACY, Meaning(Kind.CORE)),
    ("logging/setLevel", LEGACY, Meaning(Kind.CORE, "logging")),
    ("resources/subscribe", LEGACY, Meaning(Kind.CORE, "resources")),
    ("resources/unsubscribe", LEGACY, Meaning(Kind.CORE, "resources")),
    ("server/discover", MODERN, Meaning(Kind.STATIC)),
    (LISTEN, MODERN, Meaning(Kind.CORE)),
    ("tools/list", _ALL, Meaning(Kind.STATIC, "tools")),
    ("resources/list", _ALL, Meaning(Kind.STATIC, "resources")),
    ("resources/templates/list", _ALL, Meaning(Kind.STATIC, "resources")),
    ("prompts/list", _ALL, Meaning(Kind.STATIC, "prompts")),
    ("tools/call", _ALL, Meaning(Kind.CALL, "tools", mirrored="name", rounds=True)),
    ("resources/read", _ALL, Meaning(Kind.CALL, "resources", mirrored="uri", rounds=True)),
    ("prompts/get", _ALL, Meaning(Kind.CALL, "prompts", mirrored="name", rounds=True)),
    ("completion/complete", _ALL, Meaning(Kind.CALL, "completions")),
    (INITIALIZED, LEGACY, Meaning(Kind.NOTICE)),
    ("notifications/cancelled", _ALL, Meaning(Kind.NOTICE)),
    ("notifications/progress", LEGACY, Meaning(Kind.NOTICE)),
    ("notifications/roots/list_changed", LEGACY, Meaning(Kind.NOTICE)),
)

TABLE: dict[tuple[str, Version], Meaning] = {
    (method, version): meaning for method, versions, meaning in _ROWS for version in versions
}

KNOWN = frozenset(method for method, _, _ in _ROWS)
"""Every method of any version; what is known but not in the table is of another version."""

MODERN_ONLY = frozenset(
    method for method, versions, _ in _ROWS if all(version.modern for version in versions)
)
"""Methods whose very name says that the sender is modern."""

CAPABILITIES = {method: meaning.capability for method, _, meaning in _ROWS}
"""By method, the server capability without which it does not exist."""


class ListKind(Struct, frozen=True):
    """One of the lists that servers have."""

    method: str
    field: str
    """Of a page: where its items are."""
    key: str
    """Of an item: by what it is asked for."""


LIST_KINDS = {
    "tools": ListKind("tools/list", "tools", "name"),
    "resources": ListKind("resources/list", "resources", "uri"),
    "templates": ListKind("resources/templates/list", "resourceTemplates", "uriTemplate"),
    "prompts": ListKind("prompts/list", "prompts", "name"),
}
"""By the part of an offer that each shows."""

LISTS = {kind.method: name for name, kind in LIST_KINDS.items()}
"""The list methods, and the part of an offer that each shows."""
