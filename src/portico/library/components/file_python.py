"""The Python that runs a component's file: ours, the configured one, or one that uv makes for the
packages in the file's own header (PEP 723)."""

import os
import re
import shutil
import sys
import tomllib
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from msgspec import Struct

from portico.library.components.classify import ComponentError

_RUN = ("-P", "-m", "portico", "run")
# -P: modules in the working directory must not be imported.
_BOOTSTRAP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "run_outside.py")
_HEADER = re.compile(r"^# /// script$\s(?P<content>(?:^#(?:| .*)$\s)+?)^# ///$", re.MULTILINE)
_CLAUSE = re.compile(r"\s*(>=|<=|==|!=|~=|>|<)\s*(\d+)(?:\.(\d+))?[\d.*]*\s*")
_MAX_HEAD = 64 * 1024


class ScriptHeader(Struct, frozen=True):
    """The packages that a file lists for itself."""

    dependencies: tuple[str, ...] = ()
    python: str = ""
    """Its `requires-python`."""


def command_of(file: str, options: Sequence[str] = (), python: str = "") -> tuple[str, ...]:
    """Return the command line that serves `file.py` or `file.py:NAME`; `python` is the configured
    one. Raises ComponentError for a header that cannot be read."""
    if python:
        return (python, "-P", _BOOTSTRAP, _our_paths(), "run", file, *options)
    made = _environment_of(file)
    if made:
        return (*made, "python", "-P", _BOOTSTRAP, _our_paths(), "run", file, *options)
    return (sys.executable, *_RUN, file, *options)


def run_in_own_environment(file: str, argv: Sequence[str]) -> None:
    """Replace this process by one with the packages that a file lists, if it lists any and uv is
    installed; `argv` are the words of `portico run`. Raises ComponentError."""
    if _BOOTSTRAP in sys.orig_argv:
        return
    made = _environment_of(file)
    if made:
        command = (*made, "python", "-P", _BOOTSTRAP, _our_paths(), "run", *argv)
        os.execv(command[0], command)  # noqa: S606  (it is ours, with the user's own words)


def _environment_of(file: str) -> tuple[str, ...]:
    """Return the command of uv that makes the environment of a file; none if it needs none."""
    header = header_of(file)
    uv = shutil.which("uv") if header.dependencies else None
    if uv is None:
        return ()
    needs = [word for one in header.dependencies for word in ("--with", one)]
    version = sys.executable if _is_ours(header.python) else header.python
    return (uv, "run", "--quiet", "--no-project", "--python", version, *needs)


def header_of(file: str) -> ScriptHeader:
    """Return the header of a Python file; an empty one if it has none. Raises ComponentError."""
    path = file if os.path.exists(file) else file.rpartition(":")[0]
    if not path.endswith(".py"):
        return ScriptHeader()
    try:
        with open(path, encoding="utf-8", errors="replace") as opened:
            found = _HEADER.findall(opened.read(_MAX_HEAD))
    except OSError:
        return ScriptHeader()  # reported where the file is loaded
    if not found:
        return ScriptHeader()
    if len(found) > 1:
        raise ComponentError(f"{path}: has {len(found)} script headers (# /// script); keep one")
    lines = (line[2:] if line.startswith("# ") else line[1:] for line in found[0].splitlines())
    try:
        data: dict[str, Any] = tomllib.loads("\n".join(lines))
    except tomllib.TOMLDecodeError as error:
        raise ComponentError(f"{path}: its script header is not TOML: {error}") from None
    needs, python = data.get("dependencies", []), data.get("requires-python", "")
    is_list = isinstance(needs, list) and all(isinstance(one, str) for one in needs)
    if not is_list or not isinstance(python, str):
        what = "dependencies must be a list of strings, and requires-python a string"
        raise ComponentError(f"{path}: in its script header, {what}")
    return ScriptHeader(tuple(needs), python)


def file_run_by(argv: Sequence[str]) -> str:
    """Return the file that the command of a component runs; empty for another command."""
    words = tuple(argv)
    if words[1 : len(_RUN) + 1] == _RUN:
        return words[len(_RUN) + 1]
    return words[words.index(_BOOTSTRAP) + 3] if _BOOTSTRAP in words else ""


def missing_module(name: str, file: str) -> str:
    """Return how to install a module that a file imports."""
    package = name.partition(".")[0]
    try:
        lists = header_of(file).dependencies
    except ComponentError:
        lists = ()
    if lists and shutil.which("uv") is None:
        return "install uv (https://docs.astral.sh/uv/), and the packages of its header are used"
    if os.path.exists(os.path.join(sys.prefix, "pipx_metadata.json")):
        return f"run `pipx inject portico {package}`"
    if os.path.exists(os.path.join(sys.prefix, "uv-receipt.toml")):
        return f"run `uv tool install portico --with {package}`"
    return f"install it for {sys.executable}"


@lru_cache(1)
def _our_paths() -> str:
    """Return where Portico and what it needs are, for a Python that does not have them."""
    own = os.path.abspath(os.path.join(__file__, "../../../.."))
    folders = [own, *(one for one in sys.path if one.endswith("-packages"))]
    return os.pathsep.join(dict.fromkeys(folders))


def _is_ours(required: str) -> bool:
    """True if this Python satisfies `requires-python`, as far as it is about minor versions."""
    return all(map(_allows, filter(str.strip, required.split(","))))


def _allows(clause: str) -> bool:
    match = _CLAUSE.fullmatch(clause)
    if match is None:
        return False
    sign, given = match[1], (int(match[2]), int(match[3] or 0))
    ours = sys.version_info[:2]
    return {
        ">=": ours >= given,
        ">": ours > given,
        "<": ours < given,
        "<=": ours <= given,
        "==": ours == given,
        "!=": ours != given,
        "~=": ours >= given and ours[0] == given[0],
    }[sign]
