"""The source uses documented names of other packages only; each exception has its reason."""

import ast
import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support.shared import ROOT

SOURCE = ROOT / "src" / "portico"

THIRD_PARTY = {
    "cryptography.exceptions": "https://cryptography.io/en/latest/exceptions/",
    "cryptography.hazmat.primitives": "https://cryptography.io/en/latest/hazmat/primitives/",
    "cryptography.hazmat.primitives.asymmetric": ".../asymmetric/",
    "cryptography.hazmat.primitives.asymmetric.ec": ".../asymmetric/ec/",
    "cryptography.hazmat.primitives.asymmetric.ed25519": ".../asymmetric/ed25519/",
    "cryptography.hazmat.primitives.ciphers.aead": ".../aead/",
    "cryptography.hazmat.primitives.hashes": ".../cryptographic-hashes/",
    "cryptography.hazmat.primitives.kdf.hkdf": ".../key-derivation-functions/",
    "cryptography.hazmat.primitives.serialization": ".../asymmetric/serialization/",
    "httptools": "https://github.com/MagicStack/httptools#apis",
    "jsonschema_rs": "https://pypi.org/project/jsonschema-rs/",
    "msgspec": "https://jcristharif.com/msgspec/api.html",
    "msgspec.structs": "https://jcristharif.com/msgspec/api.html#structs",
    "numpy": "https://numpy.org/doc/stable/reference/",
    "numpy.typing": "https://numpy.org/doc/stable/reference/typing.html",
    "onnxruntime": "https://onnxruntime.ai/docs/api/python/",
    "prometheus_client": "https://prometheus.github.io/client_python/",
    "prometheus_client.metrics_core": ".../collector/custom/",
    "prometheus_client.registry": ".../collector/custom/",
    "rich": "https://rich.readthedocs.io/en/stable/reference.html",
    "rich.console": "https://rich.readthedocs.io/en/stable/reference/console.html",
    "rich.highlighter": "https://rich.readthedocs.io/en/stable/reference/highlighter.html",
    "rich.live": "https://rich.readthedocs.io/en/stable/reference/live.html",
    "rich.progress": "https://rich.readthedocs.io/en/stable/reference/progress.html",
    "rich.table": "https://rich.readthedocs.io/en/stable/reference/table.html",
    "rich.text": "https://rich.readthedocs.io/en/stable/reference/text.html",
    "tokenizers": "https://huggingface.co/docs/tokenizers/api/tokenizer",
    "truststore": "https://truststore.readthedocs.io/en/latest/",
    "uvloop": "https://uvloop.readthedocs.io/api/index.html",
    "wasmtime": "https://bytecodealliance.github.io/wasmtime-py/",
    "wasmtime.component": "https://bytecodealliance.github.io/wasmtime-py/component/",
}
"""The modules that the source may import, and where each is documented."""

DOCUMENTED = {"os._exit", "sys._getframe", "sys._current_frames", "_asdict"}
"""Names with an underscore that Python documents, the last one of each `NamedTuple`."""

_FFI = "the public conversion of values is slow and wrong for some; tests of round trips guard it"
_EAGER = "documented for other implementations of tasks; gone with Python 3.11"
_LISTS = "argparse has no public list of options; completion and hints need it"
PRIVATE = {
    (
        "library/wasm/loaded.py",
        "wasmtime._ffi",
    ): "ends a guest at a tick, which nothing public can",
    ("library/wit/raw_host.py", "WasmtimeError._from_ptr"): _FFI,
    ("library/wit/raw_host.py", "wasmtime._ffi"): _FFI,
    ("library/wit/raw_host.py", "wasmtime.component._enter.catch_exceptions"): _FFI,
    ("library/wit/raw_values.py", "ResourceAny._from_ptr"): _FFI,
    ("library/wit/raw_values.py", "wasmtime._ffi"): _FFI,
    ("edge/transport/eager_start.py", "asyncio.tasks._enter_task"): _EAGER,
    ("edge/transport/eager_start.py", "asyncio.tasks._leave_task"): _EAGER,
    ("commands/console/parser.py", "ArgumentParser._get_positional_actions"): _LISTS,
    ("commands/console/parser.py", "ArgumentParser._option_string_actions"): _LISTS,
    ("commands/console/parser.py", "_ActionsContainer._option_string_actions"): _LISTS,
}
"""By file, the other names with an underscore of other packages, each with its reason."""

REPLACED = {"edge/transport/eager_start.py": "as above: the step of a new task on Python 3.11"}
"""Files that replace a method of an object of another package, and why."""

FILES = sorted(SOURCE.rglob("*.py"))


@cache
def nodes(path: Path) -> list[ast.AST]:
    """Each node of a file, walked once for all tests."""
    return list(ast.walk(ast.parse(path.read_text())))


def imports(path: Path) -> Iterator[tuple[str, str]]:
    """Each imported module of other packages, and the name that it gets in the file."""
    for node in nodes(path):
        if isinstance(node, ast.Import):
            for one in node.names:
                yield one.name, one.asname or one.name.partition(".")[0]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for one in node.names:
                yield f"{node.module}.{one.name}", one.asname or one.name


def is_private(name: str) -> bool:
    return bool(re.search(r"(^|\.)_[a-z]", name, re.IGNORECASE))


def private_names(path: Path) -> Iterator[str]:
    """The private names of other packages that a file imports, reads or inherits."""
    known: dict[str, str] = {}
    for module, name in imports(path):
        if module.partition(".")[0] != "portico":
            known[name] = module
            if is_private(module):
                yield module
    for node in nodes(path):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            words = ast.unparse(node)
            is_own = node.attr in defined() or ast.unparse(node.value) in {"self", "cls"}
            is_imported = words.partition(".")[0] in known
            if (is_imported or not is_own) and not {words, node.attr} & DOCUMENTED:
                yield words
    yield from inherited(path)


@cache
def defined() -> set[str]:
    """The names that the source defines or assigns anywhere."""
    found = set()
    for node in (node for path in FILES for node in nodes(path)):
        match node:
            case ast.Attribute(attr=name, ctx=ast.Store()) | ast.Name(id=name, ctx=ast.Store()):
                found.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                found.add(name)
    return found


def inherited(path: Path) -> Iterator[str]:
    """The private names of foreign classes that a subclass of ours uses or defines anew."""
    for node in nodes(path):
        if not (isinstance(node, ast.ClassDef) and node.bases):
            continue
        theirs = [one for one in bases_of(path, node.name) if not is_ours(one)]
        names = {name for name in own_names(node) if is_private(name)}
        for base in theirs:
            yield from (f"{base.__name__}.{name}" for name in names & private_of(base))


def own_names(node: ast.ClassDef) -> Iterator[str]:
    for inner in ast.walk(node):
        match inner:
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=attribute):
                yield attribute
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name


def bases_of(path: Path, name: str) -> tuple[type, ...]:
    words = path.relative_to(SOURCE.parent).with_suffix("").parts
    found = getattr(importlib.import_module(".".join(words)), name, None)
    return inspect.getmro(found) if isinstance(found, type) else ()


def is_ours(one: type) -> bool:
    return one.__module__.partition(".")[0] == "portico"


@cache
def private_of(one: type) -> set[str]:
    """The private names that a class has, or that its methods set."""
    found = {name for name in vars(one) if is_private(name)}
    try:
        source = ast.parse(textwrap.dedent(inspect.getsource(one)))
    except (OSError, TypeError):  # of C
        return found
    for node in ast.walk(source):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            found.add(node.attr)
    return found


def test_only_documented_modules_of_others_are_imported() -> None:
    allowed, allowed_heads = {*THIRD_PARTY}, {*sys.stdlib_module_names, "portico"}
    found: dict[str, set[str]] = {}
    for path in FILES:
        for node in nodes(path):
            names = []
            if isinstance(node, ast.Import):
                names = [one.name for one in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module]
            for name in names:
                is_listed = name in allowed or is_private(name)  # in `PRIVATE`
                if not is_listed and name.partition(".")[0] not in allowed_heads:
                    found.setdefault(name, set()).add(path.name)
    assert found == {}
    imported = {module for path in FILES for module, _ in imports(path)}
    heads = imported | {one.rpartition(".")[0] for one in imported}
    assert [name for name in THIRD_PARTY if name not in heads] == [], "no longer imported"


def test_no_private_name_of_another_package_is_used() -> None:
    found = {
        (str(path.relative_to(SOURCE)), name) for path in FILES for name in private_names(path)
    }
    assert found - PRIVATE.keys() == set()
    assert PRIVATE.keys() - found == set(), "no longer used"


def test_no_method_of_a_foreign_object_is_replaced() -> None:
    found = {
        str(path.relative_to(SOURCE))
        for path in FILES
        if re.search(r"type: ignore\[[^\]]*method-assign", path.read_text())
    }
    assert found == REPLACED.keys()


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import _socket\n", ["_socket"]),
        ("from asyncio import _set_running_loop\n", ["asyncio._set_running_loop"]),
        ("import asyncio\nasyncio._set_running_loop(None)\n", ["asyncio._set_running_loop"]),
        ("def f(loop):\n    loop._scheduled.clear()\n", ["loop._scheduled"]),
        ("def f(self):\n    self.loop._scheduled.clear()\n", ["self.loop._scheduled"]),
        ("import os\nos._exit(0)\n", []),
        ("from portico.core.model.errors import _own\n", []),
    ],
)
def test_a_private_name_is_found(source: str, found: list[str], tmp_path: Path) -> None:
    path = tmp_path / "example.py"
    path.write_text(source)
    assert list(private_names(path)) == found
