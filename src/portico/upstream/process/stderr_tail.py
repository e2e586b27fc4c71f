"""The tail of a child's stderr, limited and without its secrets."""

import re
from collections.abc import Iterable

from portico.core.model.wording import printable

_MIN_SECRET = 6
_NAMED = re.compile(
    r"""((?:token|secret|passw(?:or)?d|passphrase|api_?-?key|access_?-?key|private_?-?key)"""
    r"""["']?\s*[=:]\s*["']?|\b(?:bearer|basic)\s+)[^\s"',;&]{6,}""",
    re.IGNORECASE,
)
"""The names that programs print before a secret."""
_SHAPED = re.compile(
    r"\b(?:sk-|gh[opsu]_|github_pat_|xox[abprs]-|AKIA|eyJ[\w-]{10,}\.)[\w.+/=-]{10,}"
)
"""Keys and tokens with a known shape."""
_REASON = re.compile(
    r"panic: |fatal\b|exception in thread |"
    r"(?:uncaught )?[\w.$]*(?:error|exception)(?: [\w\[\]]+)?:",
    re.IGNORECASE,
)
"""The start of a line with the reason; many programs print much more after it."""
_MAX_LINES_BACK = 100
"""How many lines before the end to search for the reason."""


class StderrTail:
    """Keeps the tail of an output of any size."""

    def __init__(self, limit: int = 64 * 1024, secrets: Iterable[str] = ()) -> None:
        self._limit = limit
        # A very short value is not a secret, and hiding each "1" would garble the message.
        long_enough = {secret for secret in secrets if len(secret) >= _MIN_SECRET}
        # The longest first: a secret may be a prefix of another.
        self._secrets = sorted(long_enough, key=len, reverse=True)
        self._data = bytearray()
        self._is_cut = False

    def __len__(self) -> int:
        return len(self._data)

    def add(self, data: bytes) -> None:
        """Add more output; the oldest is dropped."""
        self._data += data[-self._limit :]
        self._is_cut = self._is_cut or len(data) > self._limit
        if len(self._data) > 2 * self._limit:
            del self._data[: -self._limit]
            self._is_cut = True

    def hide(self, text: str) -> str:
        """Replace known secrets, and text that looks like one, by stars."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return _SHAPED.sub("***", _NAMED.sub(r"\1***", text))

    def tail(self, lines: int = 12, width: int = 400) -> str:
        """Return the last lines and the reason before them: shortened, printable, no secrets."""
        cut = self._is_cut or len(self._data) > self._limit
        text = self._data[-self._limit :].decode(errors="replace")
        text = self.hide(text)
        if cut and self._secrets:
            text = text[len(self._secrets[0]) :]  # it may begin within a secret
        recent = [line.rstrip() for line in text.splitlines() if line.strip()][-_MAX_LINES_BACK:]
        return "\n".join(printable(line)[:width] for line in _with_reason(recent, lines))


def _with_reason(lines: list[str], limit: int) -> list[str]:
    """Return the last lines, and the reason if a usage text or stack separates it from them."""
    end = lines[-limit:]
    if any(map(_REASON.match, end)):
        return end
    reasons = [line for line in lines[:-limit] if _REASON.match(line)]
    return [reasons[-1], "...", *lines[2 - limit :]] if reasons else end
