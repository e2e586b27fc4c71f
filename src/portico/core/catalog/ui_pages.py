"""The pages of tools (MCP Apps): their URIs in `_meta`, also in the spelling of drafts."""

from collections.abc import Callable

import msgspec
from msgspec import Raw, Struct, field

from portico.core.protocol.codec import decoded, encode, may_mention
from portico.core.protocol.eras import Members, members
from portico.core.protocol.exact import with_field

_UI, _URI, _DRAFT = "ui", "resourceUri", "ui/resourceUri"


class _ToolMeta(Struct):
    meta: dict[str, Raw] = field(default_factory=dict, name="_meta")


def has_page(raw: bytes) -> bool:
    """True if a tool has `_meta.ui`, or the key from drafts of MCP Apps."""
    meta = _meta(raw)
    return bytes(meta.get(_UI, b"")).startswith(b"{") or _DRAFT in meta


def page_uris(raw: bytes) -> list[str]:
    """Return the URIs of a tool's page: none, or one in each spelling."""
    meta = _meta(raw)
    found = (_text(members(meta.get(_UI, b"")).get(_URI)), _text(meta.get(_DRAFT)))
    return [uri for uri in found if uri]


def with_page_uris(raw: bytes, shown: Callable[[str], str]) -> bytes:
    """Return a tool with other URIs of its page, and all else byte for byte."""
    meta = _meta(raw)
    if not meta:
        return raw
    made = bytes(members(raw)["_meta"])
    ui = bytes(meta.get(_UI, b""))
    new = _with_uri(ui, _URI, shown)
    if new != ui:
        made = with_field(made, _UI, new)
    new = _with_uri(made, _DRAFT, shown)
    return raw if new == members(raw)["_meta"] else with_field(raw, "_meta", new)


def _with_uri(raw: bytes, key: str, shown: Callable[[str], str]) -> bytes:
    uri = _text(members(raw).get(key))
    new = shown(uri) if uri else uri
    return raw if new == uri else with_field(raw, key, encode(new))


def _meta(raw: bytes) -> Members:
    if not may_mention(raw, b"_meta"):
        return {}
    return (decoded(raw, _ToolMeta) or _ToolMeta()).meta


def _text(raw: Raw | None) -> str:
    """Return a JSON string; empty if it is anything else."""
    try:
        return "" if raw is None else msgspec.json.decode(raw, type=str)
    except msgspec.DecodeError:
        return ""
