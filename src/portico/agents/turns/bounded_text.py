"""A text of any length of which the beginning and the end are kept."""

from io import StringIO

_MAX_PIECES = 1000


class BoundedText:
    """Collects text; beyond the limit, the middle is replaced by a note.

    The end is kept because agents write their conclusion last.
    """

    def __init__(self, limit: int) -> None:
        self._head = StringIO()
        self._head_room = limit - limit // 2
        self._tail: list[str] = []
        self._tail_limit = limit // 2
        self._tail_size = 0
        self._cut = 0
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, text: str) -> None:
        """Add more text."""
        self._size += len(text)
        if self._head_room:
            self._head.write(text[: self._head_room])
            text, self._head_room = text[self._head_room :], max(0, self._head_room - len(text))
        if not text:
            return
        self._tail.append(text)
        self._tail_size += len(text)
        if self._tail_size > 4 * self._tail_limit or len(self._tail) > _MAX_PIECES:
            self._trim()

    def value(self) -> str:
        """Return the text, with a note in place of what was cut."""
        self._trim()
        note = f"\n\n[... {self._cut} characters were cut here ...]\n\n" if self._cut else ""
        return "".join((self._head.getvalue(), note, *self._tail))

    def _trim(self) -> None:
        whole = "".join(self._tail)
        excess = max(0, len(whole) - self._tail_limit)
        self._cut += excess
        self._tail, self._tail_size = [whole[excess:]], len(whole) - excess
