"""Names mean one thing: a class name is defined once, a module name says what it holds."""

import ast
from collections import defaultdict
from pathlib import Path

from tests.docs.pages import ROOT

SOURCE = ROOT / "src" / "portico"


MOST_OF_TASKS = 25
"""More classes with "Task" in their names could not be told apart."""
SMALL = 30
"""A module of fewer lines that one other imports belongs into that one."""
ALONE = {
    "commands/cli/embedded.py": "its names are public, and imported when one is used",
    "commands/console/exposure_views.py": "the text of one part of the status",
}
"""The small modules that stand alone, and why. One that no module imports is a program."""


def _modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def test_a_public_class_name_is_defined_once() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for module in _modules():
        for node in ast.parse(module.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(module.relative_to(SOURCE)))
    assert len(places) > 200
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_few_classes_have_the_word_task_in_their_names() -> None:
    names = {
        node.name
        for module in _modules()
        for node in ast.parse(module.read_text()).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    }
    found = sorted(name for name in names if "Task" in name)
    assert 10 < len(found) <= MOST_OF_TASKS, found


def test_no_module_name_is_in_three_packages() -> None:
    packages: dict[str, list[str]] = defaultdict(list)
    for module in _modules():
        if module.name != "__init__.py":
            packages[module.name].append(module.parent.name)
    assert {name: where for name, where in packages.items() if len(where) > 2} == {}


def test_a_test_module_named_after_a_module_stands_in_its_folder() -> None:
    folders: dict[str, set[Path]] = defaultdict(set)
    for module in _modules():
        folders[module.stem].add(module.parent.relative_to(SOURCE))
    mirrored = {folder for found in folders.values() for folder in found} - {Path()}
    assert len(mirrored) > 20
    misplaced = [
        str(path.relative_to(ROOT))
        for path in (ROOT / "tests").rglob("test_*.py")
        if (folder := path.parent.relative_to(ROOT / "tests")) in mirrored
        and folder not in folders.get(path.stem.removeprefix("test_"), mirrored)
    ]
    assert misplaced == []


def test_a_small_module_has_more_than_one_reader() -> None:
    names = {
        ".".join(module.relative_to(SOURCE.parent).with_suffix("").parts): module
        for module in _modules()
    }
    readers: dict[str, set[str]] = defaultdict(set)
    for reader, module in names.items():
        for imported in _imports(module):
            readers[imported].add(reader)
    small = {
        str(module.relative_to(SOURCE)): readers[name]
        for name, module in names.items()
        if module.name != "__init__.py" and len(module.read_text().splitlines()) < SMALL
    }
    assert len(small) > 5
    found = {module: where for module, where in small.items() if len(where) == 1}
    assert {module: where for module, where in found.items() if module not in ALONE} == {}


def _imports(module: Path) -> set[str]:
    """The modules that a module may import: each name, and each name in a name."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Import):
            found.update(one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found.update(f"{node.module}.{one.name}" for one in node.names)
    return found
