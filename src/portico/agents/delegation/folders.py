"""The folders in which agents may work: of the window, the client and the config."""

import os
from collections.abc import Sequence
from urllib.parse import unquote, urlsplit

from portico.core.model.context import Context
from portico.core.model.errors import AskError, McpError, ToolError
from portico.core.protocol.eras import declares


async def task_folder(context: Context, wanted: str | None, roots: Sequence[str]) -> str:
    """Return the folder of a task, with all links resolved; raises ToolError."""
    session = context.session
    own = session.folder if session is not None else ""
    known = [_real(folder) for folder in (own, *roots) if folder]
    if wanted is None and known:
        return _checked(known[0], known)
    if wanted is not None and not os.path.isabs(wanted):
        if not own:
            raise ToolError(
                f"cwd: {wanted!r} is relative, and your folder is not known; give an absolute path"
            )
        wanted = os.path.join(own, wanted)
    if wanted is not None and _is_inside(_real(wanted), known):
        return _checked(wanted, known)
    known += await _client_roots(context)
    if wanted is None:
        if not known:
            raise ToolError(
                "no folder is known for this task: give `cwd`, and add a folder that "
                "contains it to roots in [agents_defaults]"
            )
        return _checked(known[0], known)
    return _checked(wanted, known)


async def known_folder(context: Context, roots: Sequence[str]) -> str:
    """Return the folder of a task for which none is named; empty if none is known."""
    try:
        return await task_folder(context, None, roots)
    except ToolError:
        return ""


def folder_within(own: str, wanted: str | None) -> str:
    """Return the folder of a task that an agent delegates: its own or one inside it; raises
    ToolError. The agent's own claims about roots do not count."""
    real = _real(os.path.join(own, wanted or ""))
    if not _is_inside(real, [_real(own)]):
        raise ToolError(f"cwd: {wanted} is not inside the folder of your task, {own}")
    if not os.path.isdir(real):
        raise ToolError(f"cwd: {wanted} is not a folder")
    return real


async def _client_roots(context: Context) -> list[str]:
    """Return the client's own roots that are folders here."""
    if not declares(context.client_capabilities, "roots", ""):
        return []
    try:
        found = await context.roots(key="roots")
    except (AskError, McpError):
        return []
    return [path for root in found if (path := _path(str(root.get("uri", ""))))]


def _path(uri: str) -> str:
    parts = urlsplit(uri)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        return ""
    return _real(unquote(parts.path))


def _checked(folder: str, roots: Sequence[str]) -> str:
    real = _real(folder)
    if not _is_inside(real, roots):
        shown = ", ".join(roots) or "none"
        raise ToolError(
            f"cwd: {folder} is not inside the allowed folders ({shown}); add it to "
            "roots in [agents_defaults]"
        )
    if not os.path.isdir(real):
        raise ToolError(f"cwd: {folder} is not a folder")
    return real


def _is_inside(real: str, roots: Sequence[str]) -> bool:
    return any(real == root or real.startswith(root.rstrip("/") + "/") for root in roots)


def _real(path: str) -> str:
    return os.path.realpath(os.path.expanduser(path))
