"""One table from (method, version) to its meaning. A missing key *is* the version check."""

from enum import Enum

from msgspec import Struct

from portico.core.model.version import LEGACY, MODERN, Version


class MethodKind(Enum):
    """The part that answers a method."""

    STATIC = "from the catalog's ready bytes"
    CORE = "by the core itself"
    CALL = "by the first provider that owns the name"
    NOTIFICATION = "not at all: a notification"


class MethodMeaning(Struct, frozen=True):
    """The meaning of a method at one version."""

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
"""Every method of any version; a known method that the table lacks is of another version."""

MODERN_ONLY = frozenset(
    method for method, versions, _ in _ROWS if all(version.modern for version in versions)
)
"""Methods that only modern clients call."""

METHODS_WITH_TARGET = frozenset(
    {
        *("tools/call", "prompts/get", "completion/complete"),
        *("resources/read", "resources/subscribe", "resources/unsubscribe"),
    }
)
"""Methods whose params name a tool, prompt or resource."""

CAPABILITIES = {method: meaning.capability for method, _, meaning in _ROWS}
"""By method, the server capability without which it does not exist."""


class ListKind(Struct, frozen=True):
    """One kind of list that servers have."""

    method: str
    field: str
    """The field of a page that holds its items."""
    key: str
    """The field of an item that identifies it."""


LIST_KINDS = {
    "tools": ListKind("tools/list", "tools", "name"),
    "resources": ListKind("resources/list", "resources", "uri"),
    "templates": ListKind("resources/templates/list", "resourceTemplates", "uriTemplate"),
    "prompts": ListKind("prompts/list", "prompts", "name"),
}
"""The kinds of list, by the part of an offer that each shows."""

LISTS = {kind.method: name for name, kind in LIST_KINDS.items()}
"""By list method, the part of an offer that it shows."""
