"""Shows a server's elicitations at the terminal and reads the answers."""

import asyncio
import math
import sys
import termios
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import msgspec

from portico.commands.console.render import Screen, Ticker, first_line
from portico.core.model.errors import PorticoError
from portico.core.model.wording import counted
from portico.edge.client.client_answers import ClientAnswers
from portico.library.tasks.mcp.answer_choices import Choice, choices_of, chosen

_DECLINED: dict[str, Any] = {"action": "decline"}
_CANCELLED: dict[str, Any] = {"action": "cancel"}


class InputClosed(Exception):
    """The user closed standard input (Ctrl-D)."""


def can_ask(screen: Screen) -> bool:
    """True if there is a terminal to ask at, and to answer from."""
    return sys.stdin.isatty() and screen.is_terminal


async def read_line(screen: Screen, prompt: str) -> str:
    """Read one line without blocking the event loop: Ctrl-C still works. Raises InputClosed."""
    screen.stream.write(prompt)
    screen.stream.flush()
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(sys.stdin.fileno())
    line = sys.stdin.readline()
    if not line:
        raise InputClosed
    return line.rstrip("\n")


async def is_confirmed(question: str, unasked: str) -> bool:
    """Wait for a yes at the terminal; raises PorticoError with `unasked` if there is none."""
    err = Screen(sys.stderr)
    if not can_ask(err):
        raise PorticoError(unasked)
    try:
        return (await read_line(err, f"{question} [y/N] ")).strip()[:1].lower() == "y"
    except InputClosed:
        return False


def discard_typed() -> None:
    """Discard the text that waits at the terminal: it would answer the next prompt."""
    with suppress(termios.error):
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


class Form:
    """A form at the terminal; without a terminal, every elicitation is declined."""

    def __init__(self, screen: Screen, server: str, ticker: Ticker) -> None:
        self._screen = screen
        self._server = server
        self._ticker = ticker
        self._turn = asyncio.Lock()
        self.answers = ClientAnswers(elicit=self.answer, elicit_modes=("form", "url"))

    async def answer(self, params: dict[str, Any]) -> dict[str, Any]:
        """Return the user's answer to one elicitation."""
        async with self._turn:
            with self._ticker.paused():
                return await self._ask(params)

    async def _ask(self, params: dict[str, Any]) -> dict[str, Any]:
        message = params.get("message")
        text = message if isinstance(message, str) else "(no message)"
        self._screen.print(f"{self._server} requests input: {text}", "bold")
        if not can_ask(self._screen):
            self._screen.print("declined: there is no terminal to answer from", "dim")
            return _DECLINED
        try:
            if params.get("mode") == "url":
                return await self._visit(str(params.get("url")))
            return await self._fill_in(params)
        except InputClosed:
            self._screen.print("")
            return _CANCELLED

    async def _visit(self, url: str) -> dict[str, Any]:
        # Shown in full, with its host; never opened for the user (safe URL handling).
        self._screen.print(f"  URL:  {url}")
        self._screen.print(f"  host: {_host(url) or 'none'}", "bold")
        reply = await read_line(
            self._screen, "Will you open this URL in a browser yourself? [y/N] "
        )
        return {"action": "accept"} if reply[:1].lower() == "y" else _DECLINED

    async def _fill_in(self, params: dict[str, Any]) -> dict[str, Any]:
        schema = params.get("requestedSchema")
        fields = schema.get("properties") if isinstance(schema, dict) else None
        required = schema.get("required") if isinstance(schema, dict) else None
        if not isinstance(fields, dict):
            fields = {}
        while True:
            content = {}
            for name, field in fields.items():
                about = field if isinstance(field, dict) else {}
                choices = choices_of(params, about)
                value = await self._field(name, about, name in (required or ()), choices)
                if value is not None:
                    content[name] = value
                    if len(fields) == 1 and (choices or about.get("type") == "boolean"):
                        return {"action": "accept", "content": content}  # a choice is an answer
            if content:
                self._screen.data(content)
            reply = await self._reply(has_fields=bool(fields))
            if reply == "y":
                return {"action": "accept", "content": content}
            if reply == "n":
                return _DECLINED

    async def _reply(self, *, has_fields: bool) -> str:
        """Ask whether to send the form, until that is answered: `y`, `e` or `n`."""
        question = "Send this? [Y]es, [e]dit, [n]o: " if has_fields else "Accept? [y]es, [n]o: "
        letters = "yen" if has_fields else "yn"
        while True:
            reply = (await read_line(self._screen, question)).strip()[:1].lower()
            if reply and reply in letters:
                return reply
            if not reply and has_fields:
                return "y"

    async def _field(
        self, name: str, field: dict[str, Any], required: bool, choices: list[Choice]
    ) -> Any:
        title = field.get("title") if isinstance(field.get("title"), str) else name
        self._screen.print(f"  {title}{_hint(field, required)}")
        for number, choice in enumerate(choices, 1):
            word = f" ({choice.word})" if choice.word else ""
            self._screen.print(f"    {number}. {choice.label}{word}")
        while True:
            text = (await read_line(self._screen, "  > ")).strip()
            if not text and "default" in field:
                return field["default"]
            if not text and not required:
                return None
            try:
                return _convert(text, field, choices)
            except ValueError as problem:
                self._screen.print(f"  {problem}", "red")


def _host(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:  # such as an unclosed bracket in an IPv6 address
        return None


def _hint(field: dict[str, Any], required: bool) -> str:
    kind = field.get("type") if isinstance(field.get("type"), str) else "text"
    parts = [str(kind)] if "enum" not in field else []
    if isinstance(field.get("format"), str):
        parts.append(field["format"])
    if kind == "array":
        parts.append("several, with commas")
    if "default" in field:
        parts.append(f"default {msgspec.json.encode(field['default']).decode()}")
    elif not required:
        parts.append("optional")
    about = first_line(field.get("description"))
    shown = f" ({', '.join(parts)})" if parts else ""
    return shown + (f": {about}" if about else "")


def _convert(text: str, field: dict[str, Any], choices: list[Choice]) -> Any:
    """Convert the text to the field's type; raise ValueError if it is invalid."""
    kind = field.get("type")
    if kind == "array":
        return [_choose(part.strip(), choices) for part in text.split(",") if part.strip()]
    if choices:
        return _choose(text, choices)
    if kind == "boolean":
        if text.lower() not in ("y", "yes", "true", "n", "no", "false"):
            raise ValueError("enter yes or no")
        return text.lower() in ("y", "yes", "true")
    if kind in ("integer", "number"):
        return _number(text, kind, field)
    return _bounded(text, field)


def _bounded(text: str, field: dict[str, Any]) -> str:
    shortest, longest = field.get("minLength", 0), field.get("maxLength", len(text))
    if len(text) < shortest:
        raise ValueError(f"enter at least {counted(shortest, 'character')}")
    if len(text) > longest:
        raise ValueError(f"enter at most {counted(longest, 'character')}")
    return text


def _choose(text: str, choices: list[Choice]) -> str:
    value = chosen(text, choices)
    if value is None:
        raise ValueError(f"choose 1 to {len(choices)}" if choices else "there are no choices")
    return value


def _number(text: str, kind: str, field: dict[str, Any]) -> float:
    try:
        value = int(text) if kind == "integer" else float(text)
    except ValueError:
        value = math.nan
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"enter {'a whole number' if kind == 'integer' else 'a number'}")
    if value < field.get("minimum", value) or value > field.get("maximum", value):
        raise ValueError("enter a number within the allowed range")
    return value
