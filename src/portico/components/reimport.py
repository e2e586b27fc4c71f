"""Imports a component's file again: modules beside it are imported again with it."""

import os
import sys
from importlib import invalidate_caches
from types import ModuleType


def forget_modules_beside(path: str) -> None:
    """Forget the imported modules in the folder of a file, so that their files are read again.

    Modules elsewhere stay, such as those of installed packages.
    """
    folder = os.path.dirname(os.path.abspath(path))
    beside = {name for name, module in list(sys.modules.items()) if _is_beside(module, folder)}
    for name in list(sys.modules):
        if name.partition(".")[0] in beside - {"__main__", "portico"}:
            del sys.modules[name]
    invalidate_caches()  # a module may be new


def _is_beside(module: ModuleType | None, folder: str) -> bool:
    file = getattr(module, "__file__", None)
    if not isinstance(file, str):
        return False
    where = os.path.dirname(os.path.abspath(file))
    is_package = os.path.basename(file) == "__init__.py"
    return (os.path.dirname(where) if is_package else where) == folder
