"""The page of `portico inspect` about a bundle: nothing of it is run."""

import shlex
import sys
from collections.abc import Iterator

import msgspec

from portico.commands.console.render import Screen, size
from portico.core.model.wording import counted, printable
from portico.library.bundles.approvals import wish_lines
from portico.library.bundles.bundle_reader import BundleReader, open_bundle_file
from portico.library.bundles.contents import BundledComponent

_KINDS = {
    "python": "a Python file",
    "definitions": "definitions",
    "wasm": "WebAssembly",
    "bundle": "a bundle",
    "program": "a program in the bundle",
    "command": "a command",
    "url": "a server at a URL",
}


def show_bundle(path: str, *, verify: bool, as_json: bool) -> int:
    """Print what a bundle has and needs; with `verify`, after comparing every byte."""
    with open_bundle_file(path) as bundle:
        if verify:
            bundle.verify()
        if as_json:
            about = {"digest": bundle.digest, "verified": verify}
            data = {**about, **msgspec.to_builtins(bundle.contents)}
            Screen(sys.stdout).compact(data)
            return 0
        _show(Screen(sys.stdout), path, bundle, verified=verify)
    return 0


def _show(screen: Screen, path: str, bundle: BundleReader, *, verified: bool) -> None:
    contents = bundle.contents
    what = "middleware for others" if contents.is_middleware else "a server"
    screen.print(f"{printable(contents.name) or path}: a bundle, {what}", "bold")
    bytes_ = size(sum(one.size for one in contents.files))
    rows = [
        ("format", str(contents.format)),
        ("digest", bundle.digest + (" (every byte verified)" if verified else "")),
        ("files", f"{len(contents.files)}, {bytes_}"),
        ("serves", contents.transport),
    ]
    if contents.prefixed:
        rows.append(("names", "with the component's name before each"))
    if contents.shadows:
        rows.append(("shadows", printable(", ".join(contents.shadows))))
    for key, value in rows:
        screen.print(f"  {key.ljust(8)}  {value}")
    title = f"Components ({len(contents.components)})"
    screen.table(title, list(_component_rows(bundle)))
    lines = wish_lines(contents.wishes)
    screen.table(f"Needs ({counted(len(lines), 'right')})", [(line,) for line in lines])


def _component_rows(bundle: BundleReader, indent: str = "") -> Iterator[tuple[str, ...]]:
    inner = dict(bundle.inner())
    for one in bundle.contents.components:
        role = "middleware" if one.is_middleware else _KINDS[one.kind]
        yield indent + one.name, role, one.interface, printable(_about(one))
        if one.name in inner:
            yield from _component_rows(inner[one.name], f"{indent}  ")


def _about(one: BundledComponent) -> str:
    found = [one.url or shlex.join(one.argv) or one.file]
    if one.requires:
        found.append(f"needs {', '.join(one.requires)}")
    if one.overrides:
        found.append(f"in place of {one.overrides}")
    return "; ".join(found)
