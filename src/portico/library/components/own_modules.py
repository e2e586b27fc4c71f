"""The modules beside a component's file, which are imported again when one of them changes."""

import os
import sys
from collections.abc import Collection
from importlib import invalidate_caches

from portico.core.state.error_location import is_own


def files_of(path: str, others: Collection[str] = ()) -> list[str]:
    """Return a component's file and those of the loaded modules in its folder; `others` are the
    files of other components, which are not part of it."""
    return [path, *_modules_of(path, others).values()]


def forget_modules(path: str, others: Collection[str] = ()) -> None:
    """Forget the module of a component's file and those in its folder: the next import runs them
    again."""
    for name in _modules_of(path, others):
        sys.modules.pop(name, None)  # another thread may forget it at the same time
    invalidate_caches()  # a module may be new


def _modules_of(path: str, others: Collection[str]) -> dict[str, str]:
    """Return the files of the modules and packages directly in the folder of a file, by name."""
    folder = os.path.dirname(os.path.abspath(path))
    not_its_own = {os.path.abspath(other) for other in others} - {os.path.abspath(path)}
    files = {name: getattr(module, "__file__", None) for name, module in [*sys.modules.items()]}
    beside = {
        name
        for name, file in files.items()
        if file and _home(file) == folder and file not in not_its_own and is_own(file)
    }
    beside.discard("__main__")
    return {name: file for name, file in files.items() if file and name.partition(".")[0] in beside}


def _home(file: str) -> str:
    """Return the folder that a module is imported from."""
    where = os.path.dirname(os.path.abspath(file))
    return os.path.dirname(where) if os.path.basename(file) == "__init__.py" else where
