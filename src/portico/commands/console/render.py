"""Output for people: colour on a terminal, plain text elsewhere, no control codes of servers."""

import os
import re
import select
import shutil
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, TextIO

import msgspec

from portico.core.model.context import is_waiting

if TYPE_CHECKING:
    from rich.console import Console

_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
BYTES_PER_TOKEN = 4
"""About, in definitions of tools."""
_HARMLESS = "\n\t\u200c\u200d"
"""Invisible characters that stay; scripts and emoji need the joiners."""


def clean(text: str) -> str:
    """Make text safe for a terminal: remove colours and escape other invisible characters."""
    text = _COLOUR.sub("", text.replace("\r\n", "\n"))
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        c
        if c.isprintable() or c in _HARMLESS or unicodedata.category(c) in ("Zs", "Mn")
        else _escape(c)
        for c in text
    )


def _escape(c: str) -> str:
    code = ord(c)
    if code > 0xFFFF:
        # As in JSON, so that escaped JSON stays valid.
        code -= 0x10000
        return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"
    return f"\\u{code:04x}"


class Screen:
    """An output stream to which text from servers is safe to print."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.is_terminal = stream.isatty()
        self.redraws = self.is_terminal and os.environ.get("TERM") not in ("dumb", "unknown")
        """The terminal can overwrite its lines."""

    def print(self, text: str, style: str = "") -> None:
        """Print one or more lines; the style applies on a terminal only."""
        if not self.is_terminal:
            self.stream.write(text if text.endswith("\n") else f"{text}\n")
        elif style:
            from rich.text import Text

            self._console.print(Text(clean(text), style=style), soft_wrap=True)
        else:
            self.stream.write(clean(text).removesuffix("\n") + "\n")

    def write(self, text: str) -> None:
        """Print a part of a text at once, without a line break after it."""
        self.stream.write(clean(text) if self.is_terminal else text)
        self.stream.flush()

    def json(self, raw: bytes) -> None:
        """Print JSON: unchanged, or indented and coloured on a terminal."""
        if not self.is_terminal:
            self.print(raw.decode())
            return
        from rich.highlighter import JSONHighlighter
        from rich.text import Text

        text = Text(clean(msgspec.json.format(raw, indent=2).decode()))
        JSONHighlighter().highlight(text)
        self._console.print(text, soft_wrap=True)

    def compact(self, value: Any) -> None:
        """Print data as JSON: on one line, or indented and coloured on a terminal."""
        self.json(msgspec.json.encode(value))

    def data(self, value: Any) -> None:
        """Print data as indented JSON, also elsewhere."""
        self.json(msgspec.json.format(msgspec.json.encode(value), indent=2))

    def table(self, title: str, rows: Sequence[Sequence[str]]) -> None:
        """Print rows under a title, with the first column highlighted."""
        self.print("")
        self.print(title, "bold")
        if self.is_terminal:
            from rich.table import Table
            from rich.text import Text

            grid = Table.grid(padding=(0, 2))
            for row in rows:
                styles = ("cyan", "", "dim")
                cells = [Text(clean(c), style=s) for c, s in zip(row, styles, strict=False)]
                grid.add_row("", *cells)
            self._console.print(grid)
            return
        for row in rows:
            self.print("  " + "  ".join(cell for cell in row if cell))

    def print_waiting(self, what: str) -> None:
        """Print what the command waits for, on a terminal only."""
        if self.is_terminal:
            self.print(f"{what} ...", "dim")
            self.stream.flush()

    def check_reader(self) -> None:
        """Raise BrokenPipeError if the reader has closed the pipe, without waiting for a write."""
        poller = select.poll()
        poller.register(self.stream.fileno(), 0)
        if any(events & (select.POLLERR | select.POLLHUP) for _, events in poller.poll(0)):
            raise BrokenPipeError

    @cached_property
    def _console(self) -> "Console":
        from rich.console import Console

        return Console(file=self.stream, markup=False, highlight=False, emoji=False)


class Ticker:
    """Shows progress on stderr: one changing line on a terminal, separate lines elsewhere."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._shown = False
        self._paused = False

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Show nothing while the user answers a question."""
        self.clear()
        self._paused = True
        try:
            yield
        finally:
            self._paused = False

    def show(self, params: dict[str, Any]) -> None:
        """Show the params of a progress notification."""
        if self._paused:
            return
        done, total = params.get("progress"), params.get("total")
        message = params.get("message")
        count = f"{done:g}" if isinstance(done, int | float) else "?"
        if isinstance(total, int | float):
            count += f"/{total:g}"
        words = message if isinstance(message, str) else ""
        text = words if words and is_waiting(done) else f"progress {count} {words}".rstrip()
        if not self._screen.redraws:
            self._screen.print(text)
            return
        width = shutil.get_terminal_size().columns - 1  # a wrapped line cannot be overwritten
        line = _truncate(clean(text).replace("\n", " "), width)
        self._screen.stream.write(f"\r\x1b[2K{line}")
        self._screen.stream.flush()
        self._shown = True

    def clear(self) -> None:
        """Erase the line, if one is shown."""
        if self._shown:
            self._screen.stream.write("\r\x1b[2K")
            self._shown = False


def _truncate(text: str, width: int) -> str:
    """Cut a text to the width; some characters take two columns."""
    taken = 0
    for at, letter in enumerate(text):
        taken += 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        if taken > width:
            return text[:at]
    return text


def server_error(server: str, why: str) -> str:
    """An error with its server's name in front, unless it begins with that already."""
    return why if why.startswith(f"{server} ") else f"{server}: {why}"


def first_line(text: Any) -> str:
    """The first non-empty line of a description."""
    lines = text.strip().splitlines() if isinstance(text, str) else []
    return lines[0].strip() if lines else ""


def size(count: int) -> str:
    """Format a number of bytes."""
    return f"{count:,} byte{'' if count == 1 else 's'}"
