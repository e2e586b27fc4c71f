"""`portico status`: how the gateways that run fare, and each server behind them."""

import sys
import time
from collections.abc import Iterator
from typing import Any, NoReturn

import msgspec

from portico.cli.render import Screen, clean
from portico.cli.running import RunningPortico, all_of_them
from portico.cli.usage import Parser

_EVERY_S = 1.0
_HEAD = ("server", "state", "tools", "age", "starts", "last error")
_MAX_ERROR = 100
_MAX_NEWS = 5


def main(argv: list[str]) -> int:
    """Show it once, or until Ctrl-C comes; 1 if something cannot be shown."""
    options = _parser().parse_args(argv)
    if not options.watch:
        told, problem = all_of_them(options.config)
        _print(told, problem, options.json)
        return 1 if problem or any(one.error for one in told) else 0
    try:
        if Screen(sys.stdout).redraws and not options.json:
            _redraw(options.config)
        else:
            _print_changes(options.config, options.json)
    except KeyboardInterrupt:
        return 0


def _redraw(config: str | None) -> NoReturn:
    from rich.live import Live
    from rich.text import Text

    with Live(auto_refresh=False, transient=False) as live:
        while True:
            told, problem = all_of_them(config)
            lines = [*_lines(told), *([f"portico: {problem}"] if problem else [])]
            text = Text(clean("\n".join(lines)), no_wrap=True, overflow="ellipsis")
            live.update(text, refresh=True)
            time.sleep(_EVERY_S)


def _print_changes(config: str | None, as_json: bool) -> NoReturn:
    screen = Screen(sys.stdout)
    shown: object = None
    while True:
        told, problem = all_of_them(config)
        now = ([one.lasting for one in told], problem)
        if now != shown:
            if shown is not None and not as_json:
                screen.say("")
            _print(told, problem, as_json)
            sys.stdout.flush()
            shown = now
        screen.check_reader()
        time.sleep(_EVERY_S)


def _print(told: list[RunningPortico], problem: str, as_json: bool) -> None:
    screen = Screen(sys.stdout)
    if as_json:
        screen.json(msgspec.json.encode([one.as_data for one in told]))
    else:
        for line in _lines(told):
            screen.say(line)
    if problem:
        Screen(sys.stderr).say(f"portico: {problem}")


def _lines(told: list[RunningPortico]) -> Iterator[str]:
    for number, one in enumerate(told):
        if number:
            yield ""
        yield one.title
        if one.rejected:
            yield "  config not reloaded; keeping the previous one:"
            yield from (f"    {line}" for line in one.rejected.splitlines())
        for warning in one.told.get("warnings") or ():
            yield f"  warning: {_in_line(str(warning))}"
        rows = [_row(server) for server in one.servers]
        if rows:
            yield from _aligned([_HEAD, *rows])
            yield from _news(one.servers)
        elif one.error:
            yield f"  {one.error}"
        else:
            yield "  no servers; add one with `portico servers add NAME COMMAND`"


def _row(server: dict[str, Any]) -> tuple[str, ...]:
    error = str(server.get("error") or "").partition("\n")[0]
    tools = "?" if server.get("pending") else str(server.get("tools", "?"))
    left_out = (server.get("omitted") or {}).get("tools")
    if left_out:
        tools = f"{tools} of {server['tools'] + left_out}"
    starts = server.get("starts")
    return (
        str(server.get("server", "?")),
        str(server.get("state", "?")),
        tools,
        span(server.get("age_s")),
        "-" if starts is None else str(starts),
        error if len(error) <= _MAX_ERROR else f"{error[: _MAX_ERROR - 1]}…",
    )


def _news(servers: list[dict[str, Any]]) -> Iterator[str]:
    """Warnings about servers, and the latest changes of definitions."""
    from portico.catalog.history import change_line

    for server in servers:
        warnings, changes = server.get("warnings"), server.get("changes")
        for warning in warnings[:_MAX_NEWS] if isinstance(warnings, list) else ():
            yield f"  warning: {_in_line(str(warning))}"
        for change in changes[:_MAX_NEWS] if isinstance(changes, list) else ():
            words = change_line(str(server.get("server", "?")), change)
            yield f"  {change.get('time')}  {_in_line(words)}"


def _in_line(words: str) -> str:
    return clean(words).replace("\n", " ")


def _aligned(rows: list[tuple[str, ...]]) -> Iterator[str]:
    safe = [[_in_line(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*safe, strict=True)]
    for row in safe:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield f"  {'  '.join(cells)}".rstrip()


def span(seconds: Any) -> str:
    """A time for a person: one unit will do."""
    if not isinstance(seconds, int | float):
        return "-"
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _parser() -> Parser:
    parser = Parser(
        prog="portico status",
        description="Show the gateways that you run, with the state of each server behind them. "
        "If the one of your config does not run, show what is known of its servers.",
    )
    parser.add_config()
    parser.add_argument("--watch", action="store_true", help="keep showing it, until Ctrl-C")
    parser.add_json("print JSON, for programs; with --watch, each change")
    return parser
