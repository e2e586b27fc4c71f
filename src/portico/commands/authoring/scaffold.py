"""The files of a new project: written whole, beside nothing that exists."""

import errno
import keyword
import os
import re
import shutil
import sys
from collections.abc import Callable, Mapping

from msgspec import Struct

from portico.core.documents.names import is_valid_name, valid_name
from portico.core.model.errors import PorticoError
from portico.core.model.wording import printable
from portico.core.state.files import replace
from portico.library.bundles.interfaces import INTERFACES

KINDS = ("tools", "resources", "prompts", "middleware")


class NewProject(Struct, frozen=True):
    """The choices for a new project."""

    name: str
    kind: str
    interface: str

    @property
    def module(self) -> str:
        """The name of its Python module."""
        return self.name.replace("-", "_")


class Language(Struct, frozen=True):
    """A language that components are written in."""

    interface: str
    """The name of its interface, without a version."""
    files: Callable[[NewProject], Mapping[str, str]]
    """Returns the text of each file by its path."""
    needs: Callable[[], str] = lambda: ""
    """Returns what is missing here, and a remedy; empty for nothing."""
    first: str = ""
    """The command that a new project needs once; empty for none."""


def with_aligned_comments(text: str) -> str:
    """Return a README in which the comments after commands begin in one column."""
    found = [re.fullmatch(r"(\S.*?) {2,}(# .*)", line) for line in text.split("\n")]
    width = max((len(one[1]) for one in found if one), default=0)
    return "\n".join(
        f"{one[1]:{width}}  {one[2]}" if one else line
        for one, line in zip(found, text.split("\n"), strict=True)
    )


def check_project(project: NewProject, language: Language, lang: str) -> None:
    """Raise PorticoError if this project cannot be made here; nothing was written."""
    if not is_valid_name(project.name):
        raise PorticoError(
            f"{project.name[:80]!r} is not a valid name; try {valid_name(project.name)}"
        )
    module = project.module
    if not module.isidentifier() or keyword.iskeyword(module):
        raise PorticoError(
            f"{project.name} cannot be the name of a module; "
            "begin it with a letter, and use letters, digits and -"
        )
    if module in sys.stdlib_module_names or module == "portico":
        raise PorticoError(
            f"{project.name} is a module that exists already; "
            f"choose another, such as my-{project.name}"
        )
    _check_version(project, language)
    missing = language.needs()
    if missing:
        raise PorticoError(f"--lang {lang} needs {missing}; nothing was written")


def _check_version(project: NewProject, language: Language) -> None:
    name = language.interface
    known = [f"{name}@{version}" for version in INTERFACES[name]]
    if project.interface not in known:
        raise PorticoError(
            f"--version: {printable(project.interface)[:80]} is not known; "
            f"this Portico knows {', '.join(known)}; leave it out for the newest"
        )


def write_project(folder: str, files: Mapping[str, str], *, force: bool) -> None:
    """Write the files into a folder, all or none; with `force`, over files of the same names."""
    try:
        has_files = os.path.isdir(folder) and bool(os.listdir(folder))
        if os.path.lexists(folder) and not os.path.isdir(folder):
            raise PorticoError(f"{folder}: a file; give another folder with -o")
        if has_files and not force:
            raise PorticoError(
                f"{folder}: the folder is not empty; "
                "give another with -o, or --force to write into it"
            )
        if has_files:
            _write_into(folder, files)
        else:
            _write_new(folder, files)
    except OSError as error:
        why = error.strerror or error
        how = "make room" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "check the folder"
        raise PorticoError(f"{folder}: cannot be written: {why}; {how}") from None


def _write_new(folder: str, files: Mapping[str, str]) -> None:
    folder = os.path.abspath(folder)
    made = f"{folder}.{os.urandom(4).hex()}.draft"
    try:
        _write_into(made, files)
        os.rename(made, folder)  # over an empty folder too
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _write_into(folder: str, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = os.path.join(folder, *name.split("/"))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        replace(path, text.encode())
        os.chmod(path, 0o644)
