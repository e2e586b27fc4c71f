"""Writes docs/develop/map.md: the groups, the way of one call, and every module with its purpose.

`python -m tools.map` writes all of it. The groups and modules follow from the source; the way of
the call is walked in real processes.
"""

import ast
import os
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "portico"
PAGE = ROOT / "docs" / "develop" / "map.md"

GROUPS = {
    "commands": "what a person types: the commands, and what they share",
    "gateway": "`serve` and `wrap`: members, endpoints, the meta-tools, search, reload",
    "agents": "delegation: agents over ACP, routing, quotas, the tasks that they run",
    "library": "`import portico`: the chain, functions, components, tasks, the server",
    "edge": "clients come in: transports, windows, a plain client",
    "upstream": "servers are reached: wires, processes, connections, logins",
    "core": "what all share: the protocol, definitions, state, config, catalogs, HTTP/1.1",
}
"""From the top: each group imports from those below it only."""

_WALK_HEADING = "## The way of one call"
_WALKED = (
    "What `core` does for each of them is left out; "
    "`python -m tests.support.walks` prints every function."
)
_INTRO = """\
# The map

Made by `python -m tools.map` from the docstrings of the modules, their imports, and the
walk of a call. A test fails while it differs from the source. [Contributing](../../CONTRIBUTING.md)
says where to change what.
"""


def page(walk: str) -> str:
    """The whole page, with the section of the walk as it is given."""
    sections = [_INTRO, _picture(), walk, *(_group(name) for name in GROUPS), _alone()]
    return "\n".join(sections)


def kept_walk() -> str:
    """The section of the walk in the page that is kept."""
    _, _, rest = PAGE.read_text().partition(_WALK_HEADING)
    return _WALK_HEADING + rest.partition("\n## ")[0]


def modules(package: Path) -> Iterator[Path]:
    """The modules of a package without those of the packages in it."""
    return iter(sorted(path for path in package.glob("*.py") if path.name != "__init__.py"))


def purpose(module: Path) -> str:
    """The first sentence of a module's docstring, on one line."""
    text = ast.get_docstring(ast.parse(module.read_text())) or ""
    return " ".join(text.partition("\n\n")[0].split()).removesuffix(".").replace("|", "\\|")


def imports() -> Counter[tuple[str, str]]:
    """How many modules of one group import a module of another."""
    found: Counter[tuple[str, str]] = Counter()
    for path in SOURCE.rglob("*.py"):
        group = path.relative_to(SOURCE).parts[0]
        if group not in GROUPS:
            continue
        names = {
            name.split(".")[1]
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.ImportFrom)
            and (name := node.module or "").startswith("portico.")
        }
        found.update((group, name) for name in names & GROUPS.keys() - {group})
    return found


def _picture() -> str:
    """The groups as they import each other, as a diagram."""
    lines = ["## The groups", "", "An arrow says how many modules import from another group.", ""]
    lines += ["```mermaid", "flowchart TD"]
    lines += [f'    {name}["<b>{name}</b><br>{text}"]' for name, text in _labels()]
    order = list(GROUPS)
    lines += [
        f"    {importer} -->|{count}| {imported}"
        for (importer, imported), count in sorted(
            imports().items(), key=lambda row: (order.index(row[0][0]), order.index(row[0][1]))
        )
    ]
    return "\n".join([*lines, "```", ""])


def _labels() -> Iterator[tuple[str, str]]:
    for name, text in GROUPS.items():
        yield name, text.replace("`", "")


def _group(name: str) -> str:
    """One group: its packages, each with a table of its modules."""
    group = SOURCE / name
    lines = [f"## {name}/", "", f"{GROUPS[name][0].upper()}{GROUPS[name][1:]}.", ""]
    inner = {path.parent for path in group.glob("**/__init__.py")} - {group}
    for package in [group, *sorted(inner)]:
        rows = [f"| `{path.name}` | {purpose(path)} |" for path in modules(package)]
        if package != group:
            heading = str(package.relative_to(SOURCE))
            text = purpose(package / "__init__.py")
            lines += [f"### {heading}/", "", *([f"{text}.", ""] if text else [])]
        if rows:
            lines += ["| module | purpose |", "|---|---|", *rows, ""]
    return "\n".join(lines)


def _alone() -> str:
    """The modules that stand in no group."""
    rows = [f"| `{path.name}` | {purpose(path)} |" for path in modules(SOURCE)]
    return "\n".join(["## portico/", "", "| module | purpose |", "|---|---|", *rows, ""])


def walked() -> str:
    """The section of the walk: `execute_tool` through `serve`, walked just now."""
    from tests.support.walks import executing

    with TemporaryDirectory(prefix="portico-") as folder:
        walk = executing(Path(folder))
    modules = [call.partition(" ")[0] for call in walk.calls]
    outside = [name for name in modules if not name.startswith("core.")]
    first = f"{walk.name}, the second time, when everything is known."
    lines = [_WALK_HEADING, "", first, _WALKED, ""]
    lines += ["```mermaid", "flowchart TD"]
    packages = [
        (package, dict.fromkeys(name.rpartition(".")[2] for name in visits))
        for package, visits in groupby(outside, lambda name: name.rpartition(".")[0])
    ]
    for number, (package, names) in enumerate(packages):
        lines.append(f'    s{number}["<b>{package}</b><br>{", ".join(names)}"]')
    lines += [f"    s{number} --> s{number + 1}" for number in range(len(packages) - 1)]
    lines += ["```", ""]
    return "\n".join(lines)


def main() -> None:
    """Write the page."""
    os.chdir(ROOT)
    PAGE.write_text(page(walked()))
    sys.stdout.write(f"{PAGE.relative_to(ROOT)} written\n")


if __name__ == "__main__":
    main()
