"""Finds the line of the user's own code in a traceback."""

import contextlib
import os
from functools import cache
from types import TracebackType

_PORTICO = os.path.abspath(os.path.join(__file__, "../../..")) + os.sep
_LIBRARIES = ("stdlib", "platstdlib", "purelib", "platlib")


def error_location(error: BaseException, file: str = "") -> str:
    """Return `FILE:LINE` of the innermost line that is the user's own; empty if there is none.

    `file` counts as the user's own wherever it is.
    """
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return f"{shown_path(error.filename)}:{error.lineno}"
    found = ""
    trace = error.__traceback__
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if name == file or is_own(name):
            found = f"{shown_path(name)}:{trace.tb_lineno}"
        trace = trace.tb_next
    return found


def own_files(error: BaseException) -> set[str]:
    """Return the user's own files in a traceback."""
    found = {str(error.filename)} if isinstance(error, SyntaxError) else set()
    trace = error.__traceback__
    while trace is not None:
        found.add(trace.tb_frame.f_code.co_filename)
        trace = trace.tb_next
    return {file for file in found if is_own(file)}


def is_own(file: str) -> bool:
    """True unless a file belongs to Portico, to Python or to an installed package."""
    return not file.startswith(_foreign())


@cache
def _foreign() -> tuple[str, ...]:
    """Return how the names of files begin that are not the user's own."""
    import sysconfig  # slow to import, and only failures need it

    folders = (os.path.abspath(sysconfig.get_path(name)) for name in _LIBRARIES)
    return ("<", _PORTICO, *(os.path.join(folder, "") for folder in folders))


def shown_path(path: str) -> str:
    """Return a path as a user would type it."""
    try:
        here = os.path.relpath(path)
    except (OSError, ValueError):
        return path
    return path if here.startswith(os.pardir) else here


def own_traceback(error: BaseException) -> TracebackType | None:
    """Return the traceback without the leading frames of Portico, and of Python's import and
    context managers; the whole one if no others are left, but none of a SyntaxError, which
    names its line itself."""
    trace = error.__traceback__
    foreign = (_PORTICO, "<frozen ", contextlib.__file__)
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(foreign):
        trace = trace.tb_next
    if trace is None and not isinstance(error, SyntaxError):
        return error.__traceback__
    return trace
