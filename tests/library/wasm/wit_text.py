"""Writes WIT text from the facts about wasmcp's packages, as our own WIT files have it."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

# Of WIT's keywords, those that are also names in these packages.
KEYWORDS = ("from", "list", "resource", "result", "static", "stream", "string", "type")


def package_text(facts: Mapping[str, Any], *, without: tuple[str, ...] = ()) -> str:
    """Return one package as WIT, without the named interfaces."""
    lines = [f"package {facts['package']};"]
    io = _io_version(facts)
    for name, interface in facts["interfaces"].items():
        if name not in without:
            lines += ["", f"interface {_word(name)} {{", *_body(interface, io), "}"]
    return "\n".join(lines) + "\n"


def facts_of(folder: Path, file: str) -> dict[str, Any]:
    """Read the facts about one package."""
    read: dict[str, Any] = json.loads((folder / file).read_text())
    return read


def _io_version(facts: Mapping[str, Any]) -> str:
    uses = (key for one in facts["interfaces"].values() for key in one.get("uses", {}))
    return next((key.split("@")[1] for key in uses if key.startswith("wasi:io/streams@")), "")


def _body(interface: Mapping[str, Any], io: str) -> Iterator[str]:
    for source, names in interface.get("uses", {}).items():
        path = f"wasi:io/streams@{io}" if source == "streams" else source
        yield f"  use {path}.{{{', '.join(names)}}};"
    for name, kind in interface.get("types", {}).items():
        ((form, content),) = kind.items()
        yield from _type(_word(name), form, content)
    for name, function in interface.get("functions", {}).items():
        yield f"  {_word(name)}: {_function(function)};"


def _type(name: str, form: str, content: Any) -> Iterator[str]:
    if form == "type":
        yield f"  type {name} = {content};"
        return
    yield f"  {form} {name} {{"
    if form == "record":
        yield from (f"    {_word(field)}: {kind}," for field, kind in content.items())
    elif form == "variant":
        yield from (
            f"    {_word(case)}{f'({kind})' if kind else ''}," for case, kind in content.items()
        )
    elif form == "resource":
        yield from (
            f"    {_word(method)}: {_function(facts)};" for method, facts in content.items()
        )
    else:
        yield from (f"    {_word(case)}," for case in content)
    yield "  }"


def _function(facts: Mapping[str, Any]) -> str:
    params = ", ".join(f"{_word(name)}: {kind}" for name, kind in facts["params"].items())
    result = f" -> {facts['result']}" if facts["result"] else ""
    return f"{'static ' if facts.get('static') else ''}func({params}){result}"


def _word(name: str) -> str:
    return f"%{name}" if name in KEYWORDS else name
