"""Names mean one thing: a class name is defined once, a module name says what it holds."""

import ast
from collections import defaultdict
from pathlib import Path

from tests.docs.pages import ROOT

SOURCE = ROOT / "src" / "portico"


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
