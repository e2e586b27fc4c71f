"""The contents of a bundle, as its first file `portico.json` lists them."""

import hashlib
import json
import posixpath
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from portico.core.documents.names import is_valid_name
from portico.core.model.errors import PorticoError
from portico.core.model.wording import printable
from portico.library.bundles.interfaces import check_interface

FORMAT = 1
"""The format that is written; an older one is opened, a newer one is refused."""
MANIFEST = "portico.json"
MAX_BUNDLE = 256 * 1024 * 1024
MAX_MANIFEST = 1024 * 1024
MAX_FILES = 10_000
MAX_NESTED = 8
"""How deep a bundle may hold bundles."""
MAX_INNER = 1_000
"""How many bundles may be in a bundle, those in them included."""
_FILES = "parts/"
"""The folder of all files but the manifest."""
_MIN_PARTS = 3
"""`parts/0/calc.py`: each file is in the folder of its component."""
_MAX_PATH, _MAX_NAME = 512, 255
_MAX_SHOWN = 120

BundledKind = Literal["python", "definitions", "wasm", "bundle", "program", "command", "url"]
_OF_FILE = ("python", "definitions", "wasm", "bundle", "program")
WishKind = Literal["python", "program", "command", "url", "variable", "grant"]


class BundleError(PorticoError):
    """A bundle that cannot be read, written or run; the message names it and the reason."""


class BundledFile(Struct, frozen=True, forbid_unknown_fields=True):
    """One file of a bundle."""

    path: str
    size: int
    sha256: str


class Wish(Struct, frozen=True, forbid_unknown_fields=True):
    """A right that a component needs, and that an operator approves."""

    path: str
    """The component, with the bundles that it is in: `inner/calc`."""
    kind: WishKind
    value: tuple[str, ...]
    """The command line, URL, variable or grant; of code, its digest."""


class BundledComponent(
    Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """One component of a bundle."""

    name: str
    kind: BundledKind
    interface: str = ""
    """The interface and the version that it was made for; empty for a server, which negotiates."""
    file: str = ""
    variable: str = ""
    """The variable in a Python file; empty to find it."""
    handlers: str = ""
    """The Python file with the functions for definitions."""
    argv: tuple[str, ...] = ()
    """The command line; `{python}` is the interpreter, `{bundle}` the folder of the files."""
    url: str = ""
    variables: tuple[str, ...] = ()
    """The names of environment variables that its server needs."""
    grants: tuple[str, ...] = ()
    """The grants that a sandboxed component requires, as `--grant` takes them."""
    requires: tuple[str, ...] = ()
    """The modules that must be installed."""
    is_middleware: bool = False
    overrides: str = ""
    """The component in whose place it was put."""


class BundleContents(
    Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Everything that a bundle has and needs."""

    program: str
    """Always `portico`."""
    format: int
    name: str
    components: tuple[BundledComponent, ...]
    """In the order of their chain."""
    files: tuple[BundledFile, ...] = ()
    """In the order in which they are stored."""
    prefixed: bool = False
    shadows: tuple[str, ...] = ()
    transport: str = "stdio"
    """`stdio`, `http`, `http:PORT` or `FILE.py[:NAME]` in the bundle."""
    wishes: tuple[Wish, ...] = ()
    """Every wish of its components, also of those in inner bundles."""

    @property
    def is_middleware(self) -> bool:
        """True if its last component is middleware: then it is middleware for others."""
        return self.components[-1].is_middleware

    def inner(self) -> Iterator[tuple[BundledComponent, BundledFile]]:
        """Yield the bundles in it."""
        by_path = {one.path: one for one in self.files}
        for one in self.components:
            if one.kind == "bundle":
                yield one, by_path[one.file]


class _Head(Struct):
    """The fields of every format."""

    program: str = ""
    format: int = 0


def encoded(contents: BundleContents) -> bytes:
    """Return the manifest; the same contents give the same bytes with every library.

    The wishes of its own components follow from the rest, so only those of inner bundles are in it.
    """
    own = set(own_wishes(contents))
    stored = replace(contents, wishes=tuple(one for one in contents.wishes if one not in own))
    text = json.dumps(msgspec.to_builtins(stored), ensure_ascii=False, separators=(",", ":"))
    return f"{text}\n".encode()


def decoded_contents(data: bytes) -> BundleContents:
    """Parse and check a manifest; raises BundleError, without the name of the bundle."""
    try:
        head = msgspec.json.decode(data, type=_Head)
        if head.program != "portico":
            raise BundleError("it is not a bundle of Portico")
        if head.format > FORMAT:
            how = "update Portico, or compose it again"
            what = f"its format is {head.format}, and this Portico knows up to {FORMAT}"
            raise BundleError(f"{what}; {how}")
        contents = msgspec.json.decode(data, type=BundleContents)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BundleError(f"its {MANIFEST} cannot be read: {error}") from None
    check_contents(contents)
    wishes = dict.fromkeys((*own_wishes(contents), *contents.wishes))
    return replace(contents, wishes=tuple(wishes))


def check_contents(contents: BundleContents) -> None:
    """Raise BundleError if the parts of a manifest do not fit each other."""
    if contents.format < 1:
        raise BundleError(f"its format {contents.format} does not exist")
    if not contents.components:
        raise BundleError("it has no components")
    _check_files(contents.files)
    files = {one.path for one in contents.files}
    names: set[str] = set()
    for one in contents.components:
        if not is_valid_name(one.name) or one.name in names:
            raise BundleError(f"{shown(one.name)} is not a valid name, or is used twice")
        names.add(one.name)
        _check_component(one, files)
    _check_transport(contents.transport, files)


def _check_files(files: Sequence[BundledFile]) -> None:
    if len(files) > MAX_FILES:
        raise BundleError(f"it has more than {MAX_FILES:,} files")
    if sum(max(one.size, 0) for one in files) > MAX_BUNDLE:
        raise BundleError(f"its files are larger than {MAX_BUNDLE // 1024 // 1024} MB")
    paths: set[str] = set()
    folders: set[str] = set()
    for one in files:
        check_path(one.path)
        is_digest = len(one.sha256) == 64 and not one.sha256.strip("0123456789abcdef")
        if one.size < 0 or not is_digest:
            raise BundleError(f"the size or the digest of {shown(one.path)} is not valid")
        # Names that differ only by case are one file on some systems.
        folded = unicodedata.normalize("NFC", one.path).casefold()
        if folded in paths:
            raise BundleError(f"it has two files of the name {shown(one.path)}")
        paths.add(folded)
        steps = folded.split("/")
        folders.update("/".join(steps[:depth]) for depth in range(1, len(steps)))
    both = paths & folders
    if both:
        raise BundleError(f"{shown(min(both))} is both a file and a folder in it")


def check_path(path: str) -> None:
    """Raise BundleError unless this is the plain path of a file in a bundle."""
    parts = path.split("/")
    is_outside = any(part in ("", ".", "..", "__pycache__") for part in parts)
    # A file beside the folders would be imported by its neighbours, in no digest of theirs.
    is_outside |= len(parts) < _MIN_PARTS
    is_odd = "\\" in path or ":" in path or any(ord(c) < 32 for c in path)
    is_odd |= any(part.endswith((".", " ")) for part in parts)  # Windows leaves these out
    is_long = len(path) > _MAX_PATH or any(_size(part) > _MAX_NAME for part in parts)
    if is_outside or is_odd or is_long or not path.startswith(_FILES):
        raise BundleError(f"{shown(path)} is not a path inside of it")


def _size(name: str) -> int:
    """Return the size of a name in a folder; that of one that is not text is above any limit."""
    try:
        return len(name.encode())
    except UnicodeEncodeError:
        return _MAX_NAME + 1


def _check_component(one: BundledComponent, files: set[str]) -> None:
    what = shown(one.name)
    for path in (one.file, one.handlers):
        if path and path not in files:
            raise BundleError(f"the file {shown(path)} of {what} is missing")
    if (one.kind in _OF_FILE) != bool(one.file):
        raise BundleError(f"{what} has no file, or one too many")
    if (one.kind in ("command", "program")) != bool(one.argv):
        raise BundleError(f"{what} has no command, or one too many")
    if (one.kind == "url") != one.url.startswith(("http://", "https://")):
        raise BundleError(f"{what} has no URL, or one too many")
    if one.kind == "program" and one.argv not in program_lines(one.file):
        # Another file would start with the digest of this one, and be approved with it.
        raise BundleError(f"{what} does not start its own file; compose it again")
    if any("\0" in word for word in one.argv) or any(c <= " " for c in one.url):
        raise BundleError(f"{what} has a command or a URL that cannot exist")
    if any(not name or "=" in name or "\0" in name for name in one.variables):
        raise BundleError(f"{what} needs a variable that cannot exist")
    if one.kind in ("python", "definitions", "wasm"):
        check_interface(one.interface, what)
    if one.grants:
        _check_grants(one)


def _check_grants(one: BundledComponent) -> None:
    from portico.library.bundles.wanted_grants import check_wanted  # most bundles require none

    if one.kind != "wasm":
        raise BundleError(f"{shown(one.name)} requires grants, and is not sandboxed")
    for line in one.grants:
        try:
            check_wanted(line)
        except PorticoError as error:
            what = f"{shown(one.name)} requires a grant that is not valid"
            raise BundleError(f"{what}: {error}") from None


def _check_transport(transport: str, files: set[str]) -> None:
    if transport == "stdio":
        return
    scheme, _, port = transport.partition(":")
    if scheme == "http":
        if port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
            raise BundleError(f"its transport has the port {shown(port)}, which does not exist")
    elif scheme not in files:
        raise BundleError(f"its transport {shown(transport)} is missing")


def own_wishes(contents: BundleContents) -> list[Wish]:
    """Return the wishes of its own components, without those of inner bundles."""
    digests = _code_digests(contents.files)
    found = [wish for one in contents.components for wish in _wishes_of(one, digests)]
    file = transport_file(contents)
    if file:
        found.append(Wish("transport", "python", (digests[_folder_of(file)],)))
    return found


def _wishes_of(one: BundledComponent, digests: Mapping[str, str]) -> Iterator[Wish]:
    code = one.file if one.kind == "python" else one.handlers
    if code:
        yield Wish(one.name, "python", (digests[_folder_of(code)],))
    if one.kind == "program":
        yield Wish(one.name, "program", (*one.argv, digests[_folder_of(one.file)]))
    if one.kind == "command":
        yield Wish(one.name, "command", one.argv)
    if one.url:
        yield Wish(one.name, "url", (one.url,))
    for variable in one.variables:
        yield Wish(one.name, "variable", (variable,))
    for grant in one.grants:
        yield Wish(one.name, "grant", (grant,))


def inner_wishes(name: str, contents: BundleContents) -> list[Wish]:
    """Return the wishes of an inner bundle as its parent names them."""
    return [Wish(f"{name}/{one.path}", one.kind, one.value) for one in contents.wishes]


def _code_digests(files: Sequence[BundledFile]) -> Mapping[str, str]:
    """Return the digest of all files of each folder, since its code may use all of them."""
    lines: dict[str, list[str]] = {}
    for one in files:
        lines.setdefault(_folder_of(one.path), []).append(f"{one.path}\0{one.sha256}\n")
    return {
        folder: f"sha256:{hashlib.sha256(''.join(sorted(found)).encode()).hexdigest()}"
        for folder, found in lines.items()
    }


def _folder_of(path: str) -> str:
    """Return the folder that a component's files are in, such as `parts/0`."""
    return "/".join(path.split("/")[:2])


def program_lines(file: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the two command lines of a program: by itself, and with Python."""
    return (f"{{bundle}}/{file}",), ("{python}", f"{{bundle}}/{file}")


def transport_file(contents: BundleContents) -> str:
    """Return the Python file of a transport of its own; empty for stdio and HTTP."""
    path = contents.transport.partition(":")[0]
    return path if path.startswith(_FILES) else ""


def path_in_bundle(folder: int, name: str) -> str:
    """Return the path of a file from the folder of this number."""
    return posixpath.join(f"{_FILES}{folder}", name)


def shown(text: str) -> str:
    """Return text of a bundle for a message."""
    line = printable(text)
    return repr(line if len(line) <= _MAX_SHOWN else f"{line[: _MAX_SHOWN - 3]}...")
