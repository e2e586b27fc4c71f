"""Commands that install the server which they start, such as `npx` and `uvx`."""

import os
from collections.abc import Mapping, Sequence

from msgspec import Struct

INSTALL_S = 600.0

_INSTALLERS: Mapping[str, frozenset[str]] = {
    "npx": frozenset(),
    "bunx": frozenset(),
    "pnpx": frozenset(),
    "uvx": frozenset(),
    "dnx": frozenset(),
    "npm": frozenset({"exec", "x"}),
    "pnpm": frozenset({"dlx"}),
    "yarn": frozenset({"dlx"}),
    "bun": frozenset({"x"}),
    "deno": frozenset({"run"}),
    "uv": frozenset({"run", "tool"}),
    "pipx": frozenset({"run"}),
    "go": frozenset({"run"}),
    "docker": frozenset({"run"}),
    "podman": frozenset({"run"}),
}
"""By program, the subcommands that install what they run; a program without any always does."""


class Install(Struct, frozen=True):
    """The installation that a server's command may begin with."""

    package: str
    """The same for two servers that install the same."""
    within_s: float = INSTALL_S
    """How long it may take as long as it works."""


def install_of(argv: Sequence[str], within_s: float | None = None) -> Install | None:
    """Return the installation of a command; None if it is not known to install anything.

    `within_s` is the user's own limit: any command with one may install, and none with 0.
    """
    if within_s == 0 or not argv:
        return None
    program = os.path.basename(argv[0])
    words = list(argv[1:])
    subcommands = _INSTALLERS.get(program)
    found = None if subcommands is None else _after_subcommand(words, subcommands)
    if found is None and within_s is None:
        return None
    named = next((word for word in found or words if not word.startswith("-")), "")
    return Install(f"{program} {named}", within_s or INSTALL_S)


def install_seconds(argv: Sequence[str], within_s: float | None = None) -> float:
    """Return how long the installation of a command may take; 0 if there is none."""
    install = install_of(argv, within_s)
    return 0.0 if install is None else install.within_s


def _after_subcommand(words: list[str], subcommands: frozenset[str]) -> list[str] | None:
    """Return the words after the subcommand; None if it is another one."""
    if not subcommands:
        return words
    may_be_value = False
    for number, word in enumerate(words):
        if word.startswith("-"):
            may_be_value = "=" not in word
        elif word in subcommands:
            return words[number + 1 :]
        elif not may_be_value:
            return None
        else:
            may_be_value = False
    return None
