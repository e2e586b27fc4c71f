"""One table from (method, version) to its meaning. A missing key *is* the version gate."""

from enum import Enum

from msgspec import Struct

from portico.model.version import LEGACY, MODERN, Version


class MethodKind(Enum):
    """Who answers a method, and how."""

    STATIC = "from the catalog's ready bytes"
    CORE = "by the core itself"
    CALL = "by the first provider that owns the name"
    NOTIFICATION = "not at all: a notification"


class MethodMeaning(Struct, frozen=True):
    """What a method means at one version."""

    kind: MethodKind
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

_ROWS: tuple[tuple[str, tuple[Version, ...], MethodMeaning], ...] = (
    ("initialize", LEGACY, MethodMeaning(MethodKind.CORE)),
    ("ping", LEGACY, MethodMeaning(MethodKind.CORE)),
    ("logging/setLevel", LEGACY, MethodMeaning(MethodKind.CORE, "logging")),
    ("resources/subscribe", LEGACY, MethodMeaning(MethodKind.CORE, "resources")),
    ("resources/unsubscribe", LEGACY, MethodMeaning(MethodKind.CORE, "resources")),
    ("server/discover", MODERN, MethodMeaning(MethodKind.STATIC)),
    (LISTEN, MODERN, MethodMeaning(MethodKind.CORE)),
    ("tools/list", _ALL, MethodMeaning(MethodKind.STATIC, "tools")),
    ("resources/list", _ALL, MethodMeaning(MethodKind.STATIC, "resources")),
    ("resources/templates/list", _ALL, MethodMeaning(MethodKind.STATIC, "resources")),
    ("prompts/list", _ALL, MethodMeaning(MethodKind.STATIC, "prompts")),
    ("tools/call", _ALL, MethodMeaning(MethodKind.CALL, "tools", mirrored="name", rounds=True)),
    (
        "resources/read",
        _ALL,
        MethodMeaning(MethodKind.CALL, "resources", mirrored="uri", rounds=True),
    ),
    ("prompts/get", _ALL, MethodMeaning(MethodKind.CALL, "prompts", mirrored="name", rounds=True)),
    ("completion/complete", _ALL, MethodMeaning(MethodKind.CALL, "completions")),
    (INITIALIZED, LEGACY, MethodMeaning(MethodKind.NOTIFICATION)),
    ("notifications/cancelled", _ALL, MethodMeaning(MethodKind.NOTIFICATION)),
    ("notifications/progress", LEGACY, MethodMeaning(MethodKind.NOTIFICATION)),
    ("notifications/roots/list_changed", LEGACY, MethodMeaning(MethodKind.NOTIFICATION)),
)

TABLE: dict[tuple[str, Version], MethodMeaning] = {
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
