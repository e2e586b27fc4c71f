"""The tests keep the rules of CONTRIBUTING: public names, no sleeps, no skips on CI, asserts."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent
FILES = sorted(
    str(path.relative_to(ROOT))
    for path in ROOT.rglob("*.py")
    # Servers play slow, and rigs are built on the inside of the official SDK.
    if not {"node_modules", "rigs", "servers"} & set(path.relative_to(ROOT).parts)
)
LONGEST_SLEEP_S = 0.05

SLEEPS = {
    "library/components/test_handler_link.py": "the time behind a component really passes",
    "serve/test_start.py": "shows what does not come from a real gateway in its second",
    "serve/test_windows.py": "measures how often an idle gateway wakes, in seconds that pass",
    "core/state/test_watchdog.py": "the watchdog measures a loop that is really kept busy",
    "support/left_over.py": "no event says that the last process of a run has ended",
    "wrap/test_faults_stdio.py": "shows what does not come from a real gateway in its second",
    "wrap/test_load.py": "kills real servers now and then",
}
"""Files that may sleep for longer, and why."""

PRIVATE = {
    "docs/test_commands.py": "each command keeps its parser to itself, and the docs are held to it",
}
"""Files that may use private names, and why."""


SKIPS = {
    "core/documents/test_trust.py": "only root can make a file of root's",
    "agents/delegation/test_descent.py": "some systems forbid users to make namespaces",
    "core/http1/test_dial.py": "the methods of uvloop cannot be replaced",
    "support/shared.py": "skips only where CI is not set",
}
"""Files that may skip by themselves; a tool that is missing is `unavailable`, which fails on CI."""
PLATFORMS = ("sys.platform", "os.name", "os.geteuid")


@cache
def tree(file: str) -> ast.Module:
    return ast.parse((ROOT / file).read_text())


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_"


def own(node: ast.expr) -> bool:
    """True for `self`, `cls` and modules whose private names are documented."""
    return isinstance(node, ast.Name) and node.id in ("self", "cls", "os", "sys")


def private_names(file: str) -> Iterator[str]:
    for node in ast.walk(tree(file)):
        match node:
            case ast.Attribute(value=value, attr=name) if is_private(name) and not own(value):
                yield f"{node.lineno}: .{name}"
            case ast.ImportFrom(names=names):
                yield from (f"{node.lineno}: {n.name}" for n in names if is_private(n.name))
            case ast.Call(func=ast.Attribute(attr="setattr" | "delattr" | "patch"), args=args):
                for given in args[:2]:
                    match given:
                        case ast.Constant(value=str(text)) if is_private(text.rpartition(".")[2]):
                            yield f"{node.lineno}: {text}"


def constants(file: str) -> dict[str, object]:
    """The numbers that a file gives names to."""
    found: dict[str, object] = {}
    for node in tree(file).body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=value)):
                found[name] = value
    return found


def sleeps(file: str) -> Iterator[str]:
    named = constants(file)
    for node in ast.walk(tree(file)):
        match node:
            case ast.Call(func=ast.Attribute(attr="sleep"), args=[ast.Constant(value=value), *_]):
                seconds: object = value
            case ast.Call(func=ast.Attribute(attr="sleep"), args=[ast.Name(id=name), *_]):
                seconds = named.get(name)
            case _:
                continue
        if isinstance(seconds, int | float) and seconds > LONGEST_SLEEP_S:
            yield f"{node.lineno}: sleep({seconds})"


def skips(file: str) -> Iterator[str]:
    for node in ast.walk(tree(file)):
        match node:
            case ast.Call(func=ast.Attribute(attr="skip" | "importorskip" as how)):
                yield f"{node.lineno}: {how}"
            case ast.Call(func=ast.Attribute(attr="skipif"), args=[condition, *_]):
                if not ast.unparse(condition).startswith(PLATFORMS):
                    yield f"{node.lineno}: skipif"


CHECKS = {"until", "wait_for", "timeout", "soon", "eventually", "comes", "check_call"}
"""Functions that fail by themselves: those that wait, and one of the benchmarks."""
Function = ast.FunctionDef | ast.AsyncFunctionDef


def called(node: ast.AST) -> set[str]:
    """The names of all functions that are called in there."""
    calls = (one.func for one in ast.walk(node) if isinstance(one, ast.Call))
    return {function.id for function in calls if isinstance(function, ast.Name)}


def checks(function: Function) -> bool:
    """True if it can fail by itself."""
    for node in ast.walk(function):
        match node:
            case ast.Assert() | ast.Call(func=ast.Attribute(attr="raises" | "fail")):
                return True
            case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)) if name in CHECKS:
                return True
    return False


@cache
def checking() -> set[str]:
    """The functions of the tests that check something."""
    every = (node for file in FILES for node in tree(file).body)
    return {node.name for node in every if isinstance(node, Function) and checks(node)}


def test_private_names_are_used_by_nobody_else() -> None:
    found = {file: [*private_names(file)] for file in FILES if file not in PRIVATE}
    assert {file: names for file, names in found.items() if names} == {}


def test_nobody_sleeps_against_a_limit() -> None:
    found = {file: [*sleeps(file)] for file in FILES if file not in SLEEPS}
    assert {file: lines for file, lines in found.items() if lines} == {}


def test_what_is_missing_on_ci_fails() -> None:
    found = {file: [*skips(file)] for file in FILES if file not in SKIPS}
    assert {file: lines for file, lines in found.items() if lines} == {}


def test_every_exception_is_needed() -> None:
    assert [file for file in SKIPS if not [*skips(file)]] == []
    assert [file for file in PRIVATE if not [*private_names(file)]] == []
    assert [file for file in SLEEPS if not [*sleeps(file)]] == []


def test_every_test_asserts_something() -> None:
    idle = [
        f"{file}: {node.name}"
        for file in FILES
        for node in ast.walk(tree(file))
        if isinstance(node, Function) and node.name.startswith("test_") and not checks(node)
        if not called(node) & checking() and "check=True" not in ast.unparse(node)
    ]
    assert idle == []
