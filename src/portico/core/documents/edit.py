"""Changes entries of a config file, of servers or components; everything else stays."""

import copy
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec import Struct

from portico.core.documents.document import Document, as_text, open_document, parse
from portico.core.documents.names import is_valid_name, valid_name
from portico.core.documents.problems import ConfigError, Path, quoted, suggestion
from portico.core.documents.save import rewrite
from portico.core.documents.sections import is_own, names_in, section_for_new, sections

_Edit = Callable[[Document], tuple[str, dict[str, Any]]]
"""Returns the new text, and the data that it must parse to."""

_MARK = "\ufeff"


class EntryChange(Struct, frozen=True):
    """One entry to write or remove, by its path in the file."""

    at: Path
    value: Any = None
    """None removes the entry; a list of tables is appended to the one in the file."""


Changes = Callable[[Document], Iterable[EntryChange]]
"""Returns the changes for a file as it is now."""


def changed_entries(path: str, old: bytes | None, changes: Changes) -> bytes:
    """The file's new content: entries replaced in place or added at the end; ConfigError if
    they cannot be written safely."""

    def edit(document: Document) -> tuple[str, dict[str, Any]]:
        text, expected = document.text, copy.deepcopy(document.data)
        for change in changes(document):
            text = _with_change(document, text, expected, change)
        return text, expected

    return _edited(path, old, edit, make=True)


def _with_change(document: Document, text: str, expected: Any, change: EntryChange) -> str:
    """The text with one change, which is made in the expected data too."""
    editor, at, value = _editor(document), change.at, change.value
    outer, last = _outer(document, expected, at), at[-1]
    if isinstance(value, list):
        outer[last] = [*outer.get(last, ()), *value]
        return str(editor.appended(text, at, value))
    is_table = isinstance(value, Mapping)
    if value is not None and not is_table and document.kind == "toml" and not outer:
        outer[last] = value  # the first key of its table, which is new
        return str(editor.added(text, at[:-2], str(at[-2]), {last: value}))
    if value is not None and (not is_table or (last in outer and document.kind == "json")):
        outer[last] = value
        return str(editor.with_value(text, at, value))
    if outer.pop(last, None) is not None:
        text = editor.removed(text, at)
    if value is not None:
        outer[last] = value
        text = editor.added(text, at[:-1], str(last), value)
    return text


def _outer(document: Document, expected: Any, at: Path) -> Any:
    """The table around a path in the expected data, created if necessary."""
    for key in at[:-1]:
        expected = expected.setdefault(key, {})
        if not isinstance(expected, dict):
            raise _by_hand(document)
    return expected


def add_server(path: str, name: str, entry: Mapping[str, Any]) -> None:
    """Add a server at the end, creating the file if necessary; ConfigError if it exists."""
    check_name(path, name)

    def edit(document: Document) -> tuple[str, dict[str, Any]]:
        _check_new(document, name)
        section = section_for_new(document)
        expected = copy.deepcopy(document.data)
        table = expected
        for key in section.path:
            table = table.setdefault(str(key), {})
        if not isinstance(table, dict):
            raise _by_hand(document)
        table[name] = dict(entry)
        return _editor(document).added(document.text, section.path, name, entry), expected

    _change(path, edit, make=True)


def check_name(path: str, name: str) -> None:
    """Raise ConfigError if a new server cannot have this name."""
    if not is_valid_name(name):
        hint = f"try {valid_name(name)}"
        raise ConfigError(f"{path}: {quoted(name)} is not a valid server name; {hint}")
    if os.path.exists(path) and os.path.getsize(path):
        _check_new(open_document(path), name)


def _check_new(document: Document, name: str) -> None:
    if _find_server(document, name) is not None:
        raise ConfigError(
            f"{document.path}: server {name} already exists; "
            f"remove it first with `portico servers remove {name}`"
        )


def remove_server(path: str, name: str) -> None:
    """Remove a server's entry."""

    def edit(document: Document) -> tuple[str, dict[str, Any]]:
        at = _require(document, name)
        _check_groups(document, {name, str(at[-1])})
        expected = copy.deepcopy(document.data)
        del _value_at(expected, at[:-1])[at[-1]]
        return _editor(document).removed(document.text, at), expected

    _change(path, edit)


def set_enabled(path: str, name: str, on: bool) -> bool:
    """Enable or disable a server; return False if nothing changed."""
    changed = False

    def edit(document: Document) -> tuple[str, dict[str, Any]]:
        nonlocal changed
        at = _require(document, name)
        expected = copy.deepcopy(document.data)
        entry = _value_at(expected, at)
        if not isinstance(entry, dict):
            raise ConfigError(f"{document.path}: the entry of {name} is not a table; fix it first")
        changed = on != (entry.get("enabled", True) is True and entry.get("disabled") is not True)
        if not changed:
            return document.text, expected
        text = document.text
        for key, value in _flags(document, at, entry, on).items():
            text = _editor(document).with_value(text, (*at, key), value)
            entry[key] = value
        return text, expected

    _change(path, edit)
    return changed


def _check_groups(document: Document, names: set[str]) -> None:
    """Raise ConfigError if a group contains the server."""
    groups = document.data.get("groups")
    for group, entry in groups.items() if isinstance(groups, dict) else ():
        members = entry.get("servers") if isinstance(entry, dict) else None
        for one in members if isinstance(members, list) else ():
            if one in names:
                raise ConfigError(
                    f"{document.path}: groups.{quoted(group)} has {quoted(one)}; "
                    "remove it there first"
                )


def _flags(document: Document, at: Path, entry: Mapping[str, Any], on: bool) -> dict[str, bool]:
    """The keys to set: those in the entry, or else the one that the file's clients know."""
    there = {
        key: on if key == "enabled" else not on for key in ("enabled", "disabled") if key in entry
    }
    if there:
        return there
    client = document.kind == "json" and at[0] in ("mcpServers", "servers")
    return {"disabled": not on} if client else {"enabled": on}


def _change(path: str, edit: _Edit, *, make: bool = False) -> None:
    """Edit the file, if the result parses to exactly the expected data."""
    rewrite(path, lambda old: _edited(path, old, edit, make=make))


def _edited(path: str, old: bytes | None, edit: _Edit, *, make: bool) -> bytes:
    """The content with the edit, if that parses to exactly the expected data."""
    if old is None and not make:
        raise ConfigError(
            f"{path}: no such file; create it with `portico servers add NAME COMMAND`"
        )
    raw = as_text(path, old or b"")
    mark = _MARK if raw.startswith(_MARK) else ""
    if not raw.removeprefix(mark).strip() and path.endswith((".json", ".jsonc")):
        raw = "{}\n"
    document = parse(path, raw)
    if document.duplicates:
        keys, line = document.duplicates[0]
        raise ConfigError(f"{path}:{line}: {quoted(str(keys[-1]))} is set twice; fix it first")
    text, expected = edit(document)
    _check(document, text, expected)
    return old if old and text == document.text else f"{mark}{text}".encode()


def _check(document: Document, text: str, expected: dict[str, Any]) -> None:
    try:
        now = parse(document.path, text)
    except ConfigError:
        raise _by_hand(document) from None
    then = Document(document.path, document.kind, "", expected)
    if _without_empty(now) != _without_empty(then) or _order(now) != _order(then):
        raise _by_hand(document)


def _by_hand(document: Document) -> ConfigError:
    return ConfigError(
        f"{document.path}: the servers are written in a form that cannot be edited safely; "
        "edit the file by hand"
    )


def _without_empty(document: Document) -> Any:
    """The data without empty tables: TOML loses the table of its last removed server."""
    return _canonical({key: value for key, value in document.data.items() if value != {}})


def _canonical(value: Any) -> Any:
    """A form in which equal data compares equal, including nan."""
    if isinstance(value, dict):
        return {key: _canonical(value[key]) for key in value}
    if isinstance(value, list):
        return [_canonical(one) for one in value]
    return repr(value)


def _order(document: Document) -> list[list[str]]:
    """The servers' names in the order of the file."""
    tables = [section.table for section in sections(document)]
    return [list(table) for table in tables if isinstance(table, dict) and table]


def _require(document: Document, name: str) -> Path:
    at = _find_server(document, name)
    if at is None:
        hint = suggestion(name, _servers(document)) or "there is none"
        raise ConfigError(f"{document.path}: there is no server {quoted(name)}; {hint}")
    return at


def _find_server(document: Document, name: str) -> Path | None:
    """The path of a server, by its name here or its key in the file."""
    servers = _servers(document)
    by_key = (at for at in servers.values() if at[-1] == name)
    return servers.get(name) or next(by_key, None)


def _servers(document: Document) -> dict[str, Path]:
    """The path of each server and component, by its name."""
    found: dict[str, Path] = {}
    for section in sections(document):
        names = names_in(section, found)
        found.update((name, (*section.path, key)) for name, key in names.items())
    components = document.data.get("components") if is_own(document) else None
    if isinstance(components, dict):
        found.update((name, ("components", name)) for name in components if name not in found)
    return found


def _value_at(data: Any, path: Path) -> Any:
    for key in path:
        data = data[key]
    return data


def _editor(document: Document) -> Any:
    from portico.core.documents import edit_json, edit_toml

    return edit_json if document.kind == "json" else edit_toml
