"""The servers, links and imports of a Python file, found in its text: the file is never run."""

import ast
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Literal

from msgspec import Struct

from portico.library.chain.hooks import HOOKS

_LIBRARY = "portico"
_LINK_NAMES = ("link", "links", *HOOKS)
_MAX_FILES = 200
"""The limit on modules beside a file that are read."""

Origin = Literal["beside", "installed", "missing"]
_Definition = ast.FunctionDef | ast.AsyncFunctionDef


class Import(Struct, frozen=True):
    """A module that a file imports and that is not part of Python."""

    name: str
    origin: Origin
    """`beside` the file, `installed` in this Python, or `missing`."""
    by: str
    """The file that imports it first."""
    line: int


class SourceFacts(Struct, frozen=True):
    """The facts that the text of a Python file shows."""

    servers: tuple[str, ...] = ()
    """The variables that are a `Server`."""
    links: tuple[str, ...] = ()
    """The variables that are links."""
    may_have_server: bool = True
    """False if the file has no server, as far as its text shows."""
    imports: tuple[Import, ...] = ()
    offers: tuple[tuple[str, str], ...] = ()
    """The kind and the name, or URI, of each function that is registered by a decorator."""
    problem: str = ""
    """Why the file cannot be parsed."""

    @property
    def is_middleware_only(self) -> bool:
        """True for a file with links and without a server."""
        return bool(self.links) and not self.may_have_server


def analyze(path: str, variable: str = "") -> SourceFacts:
    """Return the facts about a Python file, or about one of its variables."""
    try:
        return _facts(path, variable)
    except SyntaxError as error:
        where = f"{path}:{error.lineno}" if error.lineno else path
        return SourceFacts(problem=f"{where}: {type(error).__name__}: {error.msg}")
    except OSError as error:
        return SourceFacts(problem=f"{path}: cannot be read: {error.strerror or error}")
    except (ValueError, RecursionError, MemoryError) as error:
        return SourceFacts(problem=f"{path}: cannot be parsed: {str(error) or 'too large'}")


def _facts(path: str, variable: str) -> SourceFacts:
    tree = _parse(path)
    module = _Module(tree)
    return SourceFacts(
        servers=module.servers(variable),
        links=module.links(variable),
        may_have_server=module.may_have_server(variable),
        imports=tuple(_imports(path, tree)),
        offers=tuple(module.offers(variable)),
    )


def files_beside(path: str) -> list[str]:
    """Return a Python file and the files of all modules beside it that it imports."""
    found = [path]
    folder = os.path.dirname(os.path.abspath(path))
    try:
        imported = _imports(path, _parse(path))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return found
    for one in imported:
        if one.origin == "beside":
            module = os.path.join(folder, f"{one.name}.py")
            found += [module] if os.path.isfile(module) else _files_below(folder, one.name)
    return found


def _files_below(folder: str, name: str) -> Iterator[str]:
    """Yield all files of a package, without those that Python or an editor made."""
    for where, folders, files in os.walk(os.path.join(folder, name)):
        folders[:] = sorted(one for one in folders if one != "__pycache__" and one[0] != ".")
        yield from (os.path.join(where, one) for one in sorted(files) if one[0] != ".")


def _parse(path: str) -> ast.Module:
    from warnings import catch_warnings, simplefilter

    with open(path, "rb") as file, catch_warnings():
        simplefilter("ignore")  # such as an invalid escape sequence
        return ast.parse(file.read(), path)


class _Module:
    """The variables of a module."""

    def __init__(self, tree: ast.Module) -> None:
        self._bound: dict[str, ast.AST] = {}
        self._server_classes: set[str] = set()
        """How the file spells `portico.Server`."""
        self._has_star = False
        for node in _statements(tree.body):
            self._bind(node)

    def _bind(self, node: ast.stmt) -> None:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                self._bound[node.name] = node
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    if isinstance(target, ast.Name):
                        self._bound[target.id] = value
            case ast.AnnAssign(target=ast.Name(id=name), value=value) if value is not None:
                self._bound[name] = value
            case ast.Import(names=names):
                for one in names:
                    name = one.asname or one.name.partition(".")[0]
                    self._bound[name] = node
                    if one.name == _LIBRARY:
                        self._server_classes.add(f"{name}.Server")
            case ast.ImportFrom(module=module, names=names):
                for one in names:
                    self._has_star = self._has_star or one.name == "*"
                    self._bound[one.asname or one.name] = node
                    if one.name == "Server" and module in (_LIBRARY, f"{_LIBRARY}.server"):
                        self._server_classes.add(one.asname or one.name)

    def servers(self, variable: str) -> tuple[str, ...]:
        found = tuple(name for name, value in self._bound.items() if self._is_server(value))
        return tuple(name for name in found if name == variable) if variable else found

    def links(self, variable: str) -> tuple[str, ...]:
        names = (variable,) if variable else _LINK_NAMES
        found = ((name, self._bound.get(name)) for name in names)
        return tuple(
            name for name, value in found if value is not None and not self._is_server(value)
        )[:1]

    def may_have_server(self, variable: str) -> bool:
        if self.servers(variable):
            return True
        if variable:
            return not isinstance(self._bound.get(variable), _Definition | ast.ClassDef | ast.List)
        # A variable of another name may come from a function, or from another module.
        return self._has_star or "server" in self._bound or not self.links("")

    def offers(self, variable: str) -> Iterator[tuple[str, str]]:
        names = self.servers(variable)
        for name in (variable,) if variable in names else names:
            for value in self._bound.values():
                if isinstance(value, _Definition):
                    yield from _registered(value, name)

    def _is_server(self, value: ast.AST) -> bool:
        """True for a call of `Server`, or of a constructor such as `Server.compose`."""
        if not isinstance(value, ast.Call):
            return False
        name = ast.unparse(value.func)
        return any(name == one or name.startswith(f"{one}.") for one in self._server_classes)


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a module, also those in blocks."""
    for node in body:
        yield node
        if isinstance(node, ast.If | ast.Try | ast.With | ast.For | ast.While):
            for block in ("body", "orelse", "finalbody"):
                yield from _statements(getattr(node, block, ()))
            for handler in getattr(node, "handlers", ()):
                yield from _statements(handler.body)


def _registered(function: _Definition, server: str) -> Iterator[tuple[str, str]]:
    """Yield what the decorators of a function register at this server."""
    for decorator in function.decorator_list:
        call = decorator if isinstance(decorator, ast.Call) else None
        match call.func if call is not None else decorator:
            case ast.Attribute(value=ast.Name(id=owner), attr="resource") if owner == server:
                uri = None if call is None else _constant(call, is_uri=True)
                if uri is not None:
                    yield "templates" if "{" in uri else "resources", uri
            case ast.Attribute(value=ast.Name(id=owner), attr="tool" | "prompt" as kind) if (
                owner == server
            ):
                name = None if call is None else _constant(call, is_uri=False)
                yield f"{kind}s", name or function.name


def _constant(call: ast.Call, *, is_uri: bool) -> str | None:
    """Return the name or URI that a decorator is given."""
    given = call.args[:1] if is_uri else []
    given += [one.value for one in call.keywords if one.arg == ("uri" if is_uri else "name")]
    for one in given:
        if isinstance(one, ast.Constant) and isinstance(one.value, str):
            return one.value
    return None


def _imports(path: str, tree: ast.Module) -> list[Import]:
    """Return the imports of a file and of the modules beside it, each once."""
    folder = os.path.dirname(os.path.abspath(path))
    found: dict[str, Import] = {}
    waiting, read = [(path, tree)], 1
    while waiting:
        by, tree = waiting.pop(0)
        for name, line in _imported(tree):
            if name in found or name == _LIBRARY or name in sys.stdlib_module_names:
                continue
            beside = _beside(folder, name)
            origin: Origin = "beside" if beside is not None else _origin(name)
            found[name] = Import(name, origin, by, line)
            if beside and read < _MAX_FILES:
                read += 1
                try:
                    waiting.append((beside, _parse(beside)))
                except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
                    continue  # reported when it is imported
    return list(found.values())


def _imported(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield the names of imported modules, also inside functions, with their lines."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        match node:
            case ast.If(test=test) if ast.unparse(test).rpartition(".")[2] == "TYPE_CHECKING":
                waiting.extend(reversed(node.orelse))
                continue
            case ast.Import(names=names):
                yield from ((one.name.partition(".")[0], node.lineno) for one in names)
            case ast.ImportFrom(level=0, module=str(module)):
                yield module.partition(".")[0], node.lineno
            case ast.ImportFrom(level=level, module=module) if level:
                # A component is not in a package.
                yield f"{'.' * level}{module or ''}", node.lineno
        waiting.extend(reversed(list(ast.iter_child_nodes(node))))


def _beside(folder: str, name: str) -> str | None:
    """Return the file of a module in this folder; empty for a folder without one, None if there is
    no such module."""
    for file in (f"{name}.py", os.path.join(name, "__init__.py")):
        if os.path.isfile(os.path.join(folder, file)):
            return os.path.join(folder, file)
    return "" if os.path.isdir(os.path.join(folder, name)) and "." not in name else None


def _origin(name: str) -> Origin:
    from importlib.util import find_spec

    if name.startswith("."):
        return "missing"
    try:
        found = find_spec(name)  # of a module without a dot: nothing is imported
    except (ImportError, ValueError, AttributeError):
        found = None
    return "missing" if found is None else "installed"
