"""The rights of a bundle: shown to the person at the terminal, and stored once approved."""

import shlex
import sys

from portico.commands.console.render import Screen
from portico.core.config.paths import state_folder
from portico.library.bundles.approvals import Approvals, wish_lines
from portico.library.bundles.bundle_reader import BundleReader
from portico.library.bundles.contents import BundleError


def approve_bundle(bundle: BundleReader, path: str, origin: str) -> None:
    """Return if all rights of a bundle are approved, now or before; raises BundleError."""
    approvals = Approvals(state_folder())
    missing = approvals.missing(bundle, origin)
    if not missing:
        if bundle.contents.wishes and not approvals.is_known(bundle):
            accept_bundle(bundle, origin)  # a newer one: the bundles in it are approved with it
        return
    lines, has_changed = wish_lines(missing), approvals.has_changed(origin)
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise BundleError(_unapproved(path, lines, has_changed=has_changed))
    show_wishes(Screen(sys.stderr), path, lines, has_changed=has_changed)
    print("Allow this? [y/N] ", end="", file=sys.stderr, flush=True)  # noqa: T201 (stdout is MCP's)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise BundleError("not allowed, so nothing of it was run")
    accept_bundle(bundle, origin)


def show_wishes(screen: Screen, path: str, lines: list[str], *, has_changed: bool) -> None:
    """Print the rights that a bundle needs, and whether an earlier one was approved."""
    why = "has changed since it was approved, and needs" if has_changed else "needs"
    screen.print(f"{path} {why}:", "bold")
    for line in lines:
        screen.print(f"  {line}")


def accept_bundle(bundle: BundleReader, origin: str) -> None:
    """Remember that all rights of a bundle are approved; raises BundleError."""
    try:
        Approvals(state_folder()).accept(bundle, origin)
    except OSError as error:
        why = error.strerror or error
        raise BundleError(
            f"the approval cannot be written: {why}; make room for it, or check the state folder"
        ) from None


def _unapproved(path: str, lines: list[str], *, has_changed: bool) -> str:
    shown = "\n".join(f"  {line}" for line in lines)
    how = f"read this, and run `portico approve {shlex.quote(path)}` to allow it"
    why = "it has changed since it was approved, and needs" if has_changed else "it needs"
    return f"{why} rights that are not approved here; {how}:\n{shown}"
