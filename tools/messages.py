"""Finds every text of the source that a user, an operator or a model can read.

The source is parsed, never run. A text is found in two ways. Either it reaches a sink: a call, a
key or a name of the tables below, or an exception; there single words count too. Or it looks like
a text: it has a letter and a space. The tables also name everything that is left out, and why.
"""

import ast
import builtins
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "portico"

_KINDS = {
    "error": "error_response refusal overloaded error_result failure wrong problem error busy "
    "_refuse _broken _protocol_error _give_up _abandon _fail _failed _cut_off _disconnect _reject "
    "_must _wrong_type _bad_meta because warn_broken exit",
    "report": "report _report warn warning say _report_once tell report_waiting print_waiting "
    "print _warn table event",
    "help?": "add new Parser add_argument add_argument_group add_json add_config valued repeatable",
    "model": "_tool _texts",
}
CALLS = {name: kind for kind, names in _KINDS.items() for name in names.split()}
"""Calls that show or send their arguments, and the kind of text. After a `?` a single word is not a
text: it is the name of an option."""
KEYS = {
    **dict.fromkeys(("help", "epilog", "usage", "metavar"), "help"),
    **dict.fromkeys(("description", "title", "instructions"), "model"),
    **dict.fromkeys(("message", "reason", "hint"), "error"),
}
"""Arguments and keys of dicts whose value is shown, whatever they are given to."""
NAMES = {
    **dict.fromkeys(("_HEAD", "_TABLES"), "report"),  # heads of tables that commands print
    **dict.fromkeys(("STATES", "_state"), "report"),  # of servers, in `portico status` and metrics
    **dict.fromkeys(("_capabilities", "_identity"), "report"),  # in `portico inspect`
    **dict.fromkeys(("type_name", "_kind"), "error"),  # types, in errors and in lists of arguments
}
"""Variables and functions whose words are shown, single ones too."""
LEFT_OUT = {
    "__all__": "names for Python",
    "__slots__": "names for Python",
    **dict.fromkeys(("_BASH", "_ZSH", "_FISH"), "programs for a shell"),
    "Numbers": "a type",
    **dict.fromkeys(("STATIC", "CORE", "CALL", "NOTIFICATION"), "members of an enum"),
}
"""Variables and functions whose strings are not for people, and the reason."""
NOT_TEXTS = {
    "a regular expression": re.compile(r"\\\(|\(\?:"),
    "a line or a value of HTTP": re.compile(r"HTTP/1\.1($|\\)|^(Host:|Proxy-\w+:|Bearer|Basic) \{"),
    "media types": re.compile(r"^application/json(, text/event-stream)?$"),
    "a method": re.compile(r"^[a-z]+(/\w+)+$"),
    "names, to be split": re.compile(r"^\\n( |\\n|[\w*-])+$"),
    "SQL": re.compile(
        r"^(\\n)?(SELECT|INSERT|UPDATE|DELETE|CREATE|PRAGMA|BEGIN|ROLLBACK|COMMIT)( |$)"
    ),
    "a style": re.compile(r"^(bold )?(bold|cyan|dim|green|red|yellow)$"),
    "a prefix of a file's name": re.compile(r"^<frozen $"),
}
"""Strings that look like texts but are not."""
_NOT_SHOWN = """
    startswith endswith partition rpartition removeprefix removesuffix replace split rsplit strip
    rstrip lstrip count find encode translate maketrans compile match fullmatch finditer findall
    sub strptime strftime fromisoformat TypeVar cast getattr hasattr setattr import_module
    with_name getenv get pop
"""
NOT_SHOWN = frozenset(_NOT_SHOWN.split())
"""Calls that search for, split at or look up what they are given."""
SHOWN_TOO = frozenset(("join", "format", "clean", "str", "ljust", "encode", "next", "Text"))
"""Calls whose arguments are shown where their result is."""
_ESCAPES = str.maketrans({"\n": "\\n", "\r": "\\r", "\t": "\\t"})
_LETTER = re.compile(r"[^\W\d_]")


class Text(NamedTuple):
    """One text: its file, seen from the package, how it is shown, and its words."""

    file: str
    kind: str
    words: str

    @property
    def package(self) -> str:
        """The first part of the file's path."""
        return self.file.partition("/")[0]


@cache
def sources() -> dict[str, str]:
    """Every file of the package, with what it holds: modules outside packages first."""
    files = sorted(SOURCE.rglob("*.py"), key=lambda path: (path.parent != SOURCE, path))
    return {path.relative_to(SOURCE).as_posix(): path.read_text() for path in files}


@cache
def texts() -> tuple[Text, ...]:
    """Every text, by file and in order of appearance."""
    return tuple(texts_of(sources()))


def texts_of(files: Mapping[str, str]) -> Iterator[Text]:
    """The texts of some files."""
    trees = {file: ast.parse(source) for file, source in files.items()}
    calls = {**dict.fromkeys(_exceptions(trees.values()), "error"), **CALLS}
    for file, tree in trees.items():
        yield from dict.fromkeys(_Reader(file, tree, calls).read(tree))


def _exceptions(trees: Iterable[ast.Module]) -> set[str]:
    """The names of all classes that derive from an exception."""
    bases = {
        node.name: {_name(base) for base in node.bases}
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    found = {name for name, each in vars(builtins).items() if _is_exception(each)}
    while new := {name for name, above in bases.items() if above & found} - found:
        found |= new
    return found


def _is_exception(each: object) -> bool:
    return isinstance(each, type) and issubclass(each, BaseException)


class _Reader:
    """Collects the texts of one module."""

    def __init__(self, file: str, tree: ast.Module, calls: dict[str, str]) -> None:
        self._file = file
        self._calls = calls
        self._shown: dict[ast.AST, str] = {}
        self._left_out: set[ast.AST] = set()
        for node in ast.walk(tree):
            for name, values in _definitions(node):
                if name in NAMES:
                    self._shown.update(dict.fromkeys(values, NAMES[name]))
                if name in LEFT_OUT:
                    self._left_out.add(node)

    def read(self, node: ast.AST, kind: str = "") -> Iterator[Text]:
        """The texts in a part of the source; `kind` if this part is shown."""
        kind = kind or self._shown.get(node, "")
        match node:
            case ast.Constant(value=str(words)):
                yield from self._text(words, kind)
            case ast.JoinedStr(values=values):
                yield from self._text(_template(node), kind)
                for value in values:
                    yield from self._placeholder(value)
            case ast.Expr(value=ast.Constant()):
                return  # a docstring
            case ast.Call():
                yield from self._call(node, kind)
            case ast.Dict(keys=keys, values=values):
                for key, value in zip(keys, values, strict=True):
                    word = str(key.value) if isinstance(key, ast.Constant) else ""
                    yield from self._all((key,))
                    yield from self.read(value, KEYS.get(word) or kind)
            case ast.Compare(left=left, comparators=others):
                yield from self._all(each for each in (left, *others) if not _is_plain(each))
            case ast.Subscript(value=value, slice=key):
                yield from self.read(value, kind)
                yield from self._all(() if _is_plain(key) else (key,))
            case ast.IfExp(test=test, body=body, orelse=orelse):
                yield from self._all((test,))
                yield from self._all((body, orelse), kind)
            case ast.MatchValue() | ast.arg():
                return
            case _ if node not in self._left_out:
                yield from self._all(_parts(node), "" if isinstance(node, ast.stmt) else kind)

    def _all(self, nodes: Iterable[ast.AST | None], kind: str = "") -> Iterator[Text]:
        for node in nodes:
            if node is not None:
                yield from self.read(node, kind)

    def _call(self, node: ast.Call, kind: str) -> Iterator[Text]:
        name = _name(node.func)
        inside = self._calls.get(name) or (kind if name in SHOWN_TOO else "")
        yield from self.read(node.func, inside)
        hidden = name in NOT_SHOWN and node.args and _is_plain(node.args[0])
        yield from self._all(node.args[1:] if hidden else node.args, inside)
        for keyword in node.keywords:
            if keyword.arg == "kind":  # a word for programs, in docs/errors.md
                continue
            shown = KEYS.get(keyword.arg or "", "")
            help_too = shown and inside == "help?"
            yield from self.read(keyword.value, "help" if help_too else shown or inside)

    def _placeholder(self, value: ast.expr) -> Iterator[Text]:
        """The texts in a placeholder, but for those that its template shows already."""
        if isinstance(value, ast.FormattedValue):
            for each in _choices(value.value) or [value.value]:
                if isinstance(each, ast.JoinedStr):
                    for inner in each.values:
                        yield from self._placeholder(inner)
                elif not isinstance(each, ast.Constant):
                    yield from self.read(each)

    def _text(self, words: str, kind: str) -> Iterator[Text]:
        own = re.sub(r"\{[^{}|]*\}", "", words)
        by_shape = not kind or kind.endswith("?")
        if not _LETTER.search(own) or (by_shape and " " not in words):
            return
        line = words.translate(_ESCAPES)
        if not any(pattern.search(line) for pattern in NOT_TEXTS.values()):
            yield Text(self._file, kind.rstrip("?") or "text", line)


def _definitions(node: ast.AST) -> Iterator[tuple[str, Sequence[ast.AST]]]:
    """The names that a statement assigns, and their expressions."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            ends = (ast.Return, ast.Yield)
            yield node.name, [e.value for e in ast.walk(node) if isinstance(e, ends) and e.value]
        case ast.ClassDef():
            yield node.name, [each.value for each in node.body if isinstance(each, ast.Assign)]
        case ast.Assign(targets=targets, value=value):
            yield from ((_name(target), [value]) for target in targets)
        case ast.AnnAssign(target=target, value=ast.expr() as value):
            yield _name(target), [value]


def _parts(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of a node, without its types."""
    for field, value in ast.iter_fields(node):
        if field not in ("annotation", "returns", "bases"):
            yield from (each for each in _listed(value) if isinstance(each, ast.AST))


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]


def _is_plain(node: ast.AST) -> bool:
    """It is a constant, or several: something to compare with or to look up."""
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return all(map(_is_plain, node.elts))
    return isinstance(node, ast.Constant)


def _template(node: ast.expr) -> str:
    """An f-string, with its placeholders."""
    match node:
        case ast.Constant(value=words):
            return str(words)
        case ast.JoinedStr(values=values):
            return "".join(map(_template, values))
        case ast.FormattedValue(value=value):
            return "{" + ("|".join(map(_template, _choices(value))) or "value") + "}"
    return "value"


def _choices(node: ast.expr) -> list[ast.expr]:
    """The values of which a placeholder shows one, if some of them are texts."""
    match node:
        case ast.IfExp(body=body, orelse=orelse):
            found = [body, *(_choices(orelse) or [orelse])]
        case ast.BoolOp(op=ast.Or(), values=found):
            pass
        case _:
            return []
    return found if any(isinstance(each, ast.Constant | ast.JoinedStr) for each in found) else []


def _name(node: ast.AST) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""
