"""The table of clients by the names that they send, and whether each defers tools itself.

A client that defers keeps definitions out of the context and searches them: it is best shown every
tool. `tests/fit/recordings` has the first messages of the real clients, and the tests compare.
"""

from collections.abc import Container

from msgspec import Struct

EVERY_VERSION: tuple[int, ...] = ()


class KnownClient(Struct, frozen=True):
    """A client, as its first message names it."""

    name: str
    """Its name in `portico install` and in `[clients.NAME]`."""
    wire: tuple[str, ...]
    """The names in its `clientInfo`; a final `*` is any end of a name."""
    defers_from: tuple[int, ...] | None = None
    """The first version that defers tools; None if no version does."""
    variables: tuple[str, ...] = ()
    """Environment variables that it alone gives to its servers."""

    def sends(self, name: str) -> bool:
        """True if it calls itself so."""
        return any(
            name.startswith(wire[:-1]) if wire.endswith("*") else name == wire for wire in self.wire
        )

    def defers(self, version: str) -> bool:
        """True if this version defers tools; an unreadable version counts as a new one."""
        if self.defers_from is None:
            return False
        parts = version.split(".")
        if not all(part.isascii() and part.isdigit() and len(part) < 9 for part in parts):
            return True
        return tuple(map(int, parts)) >= self.defers_from


KNOWN_CLIENTS = (
    KnownClient("claude", ("claude-code",), (2, 1, 7), ("CLAUDECODE",)),
    KnownClient("codex", ("codex-mcp-client",), (0, 149)),
    KnownClient("copilot", ("copilot-cli",), (1, 0, 78), ("COPILOT_AGENT_SESSION_ID",)),
    # Its name ends with that of the server in its settings, and its version is never its own.
    KnownClient("qwen", ("qwen-cli-mcp-client-*",), EVERY_VERSION, ("QWEN_CODE_SESSION_ID",)),
    KnownClient("opencode", ("opencode",), None, ("OPENCODE",)),
    KnownClient("gemini", ("gemini-cli-mcp-client",), None, ("GEMINI_CLI",)),
)


def known_client(name: str) -> KnownClient | None:
    """Return the client with this name, of ours or on the wire; None if it is unknown."""
    if not name:
        return None
    return next((one for one in KNOWN_CLIENTS if name == one.name or one.sends(name)), None)


def client_of_environment(variables: Container[str]) -> str:
    """Return the name of the client whose variables these are; empty for none, or for several: a
    client may run in the terminal of another."""
    found = [one.name for one in KNOWN_CLIENTS if any(name in variables for name in one.variables)]
    return found[0] if len(found) == 1 else ""
