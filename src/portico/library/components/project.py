"""A component's project: `component.toml` beside its source, with its build and its interface."""

import glob
import os
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from portico.core.model.wording import close_matches, did_you_mean, printable
from portico.library.bundles.interfaces import check_interface
from portico.library.components.classify import PROJECT_FILE, ComponentError

_MAX_SIZE = 256 * 1024
_MAX_FILES = 2_000


class Project(Struct, frozen=True, kw_only=True):
    """A folder in which a component is made."""

    folder: str
    component: str
    """The file that runs, such as `calc.py` or what the build makes."""
    interface: str = ""
    build: tuple[str, ...] = ()
    """The command that makes the component, in the folder; empty for none."""
    sources: tuple[str, ...] = ()
    """Patterns of the files that the build reads."""
    files: tuple[str, ...] = ()
    """Patterns of further files that the component reads when it runs."""

    @property
    def path(self) -> str:
        """The path of its component."""
        return os.path.join(self.folder, self.component)

    def source_files(self) -> list[str]:
        """Return the files that a build depends on, which exist now."""
        return self._found(self.sources)

    def data_files(self) -> list[str]:
        """Return the further files that belong to the component; raises ComponentError for one
        that is elsewhere: a link to a private file would put it into a bundle."""
        found = self._found(self.files)
        inside = os.path.join(os.path.realpath(self.folder), "")
        for path in found:
            if not os.path.realpath(path).startswith(inside):
                how = "copy the file into the folder"
                raise ComponentError(f"{path}: a link that leads outside of its project; {how}")
        return found

    def _found(self, patterns: Sequence[str]) -> list[str]:
        found = {
            os.path.join(self.folder, name)
            for pattern in patterns
            for name in glob.iglob(pattern, root_dir=self.folder, recursive=True)
            if os.path.isfile(os.path.join(self.folder, name))
        }
        if len(found) > _MAX_FILES:
            what = f"its patterns match {len(found):,} files"
            raise ComponentError(f"{self.folder}/{PROJECT_FILE}: {what}; narrow them")
        return sorted(found)


def project_in(folder: str) -> Project | None:
    """Return the project of a folder; None if it has none; raises ComponentError."""
    path = os.path.join(folder, PROJECT_FILE)
    try:
        with open(path, "rb") as file:
            text = file.read(_MAX_SIZE + 1)
        if len(text) > _MAX_SIZE:
            raise ComponentError(f"{path}: larger than {_MAX_SIZE:,} bytes")
        data = tomllib.loads(text.decode())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ComponentError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ComponentError(f"{path}: not valid TOML: {error}") from None
    return _checked(folder, path, data)


def project_of(component: str) -> Project | None:
    """Return the project that makes this file; None for any other file; raises ComponentError."""
    found = project_in(os.path.dirname(os.path.abspath(component)))
    is_its = found is not None and os.path.abspath(found.path) == os.path.abspath(component)
    return found if is_its else None


_TEXTS = ("component", "interface")
_LISTS = ("build", "sources", "files")


def _checked(folder: str, path: str, data: Mapping[str, Any]) -> Project:
    for key, value in data.items():
        if key not in (*_TEXTS, *_LISTS):
            near = did_you_mean(close_matches(key, (*_TEXTS, *_LISTS))) or "remove it"
            raise ComponentError(f"{path}: there is no key {printable(key)[:80]!r}; {near}")
        is_list = isinstance(value, list) and all(isinstance(one, str) and one for one in value)
        if key in _TEXTS and not (isinstance(value, str) and value):
            raise ComponentError(f"{path}: {key} must be a text")
        if key in _LISTS and not is_list:
            raise ComponentError(f"{path}: {key} must be a list of texts")
    if "component" not in data:
        how = 'add component = "FILE"'
        raise ComponentError(f"{path}: the component is missing; {how}")
    for value in (data["component"], *data.get("sources", ()), *data.get("files", ())):
        if os.path.isabs(value) or ".." in value.split("/"):
            how = "name a file in this folder"
            raise ComponentError(f"{path}: {printable(value)[:80]!r} leads outside; {how}")
    if "interface" in data:
        check_interface(data["interface"], path)
    lists = {key: tuple(data.get(key, ())) for key in _LISTS}
    return Project(
        folder=folder, component=data["component"], interface=data.get("interface", ""), **lists
    )
