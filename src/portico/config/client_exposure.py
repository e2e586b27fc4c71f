"""The table of clients by the names that they send, and whether each defers tools itself.

A client that defers keeps definitions out of the context and searches them: it is best shown every
tool. Names were seen on the wire, except that of Gemini CLI, which is read from its program.
"""

from msgspec import Struct


class KnownClient(Struct, frozen=True):
    """A client, as its first message names it."""

    name: str
    """Its name in `portico install` and in `[clients.NAME]`."""
    wire: str
    """The name in its `clientInfo`."""
    defers_from: tuple[int, ...] | None = None
    """The first version that defers tools; None if no version does."""

    def defers(self, version: str) -> bool:
        """True if this version defers tools; an unreadable version counts as a new one."""
        if self.defers_from is None:
            return False
        parts = version.split(".")
        if not all(part.isascii() and part.isdigit() and len(part) < 9 for part in parts):
            return True
        return tuple(map(int, parts)) >= self.defers_from


KNOWN_CLIENTS = (
    KnownClient("claude", "claude-code", (2, 1, 7)),
    KnownClient("codex", "codex-mcp-client", (0, 149)),
    KnownClient("opencode", "opencode"),
    KnownClient("gemini", "gemini-cli-mcp-client"),
)


def known_client(name: str) -> KnownClient | None:
    """Return the client with this name, of ours or on the wire; None if it is unknown."""
    return next((one for one in KNOWN_CLIENTS if name and name in (one.name, one.wire)), None)
