"""`portico status`: the state of the running gateways and of each of their servers."""

import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from portico import __version__
from portico.commands.console.login_views import login_line, login_warning
from portico.commands.console.parser import Parser
from portico.commands.console.render import Screen, clean
from portico.commands.console.running import RunningPortico, in_folders, list_porticos
from portico.commands.console.tables import aligned, duration, on_one_line, shortened
from portico.upstream.wires.wire import in_one_line

_MAX_LINES = 20
_SHOWN = {"all": "all tools", "search": "the meta-tools"}
_POLL_S = 1.0
_HEAD = ("server", "state", "tools", "age", "starts", "last error")
_MAX_ERROR = 100
_MAX_NOTICES = 5


def main(argv: list[str]) -> int:
    """Show the status once, or until Ctrl-C; return 1 if a part is unavailable."""
    options = _parser().parse_args(argv)
    if not options.watch:
        porticos, problem = list_porticos(options.config, __version__)
        _print(porticos, problem, options.json)
        return 1 if problem or any(portico.error for portico in porticos) else 0
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
            porticos, problem = list_porticos(config, __version__)
            lines = [*_lines(porticos), *([f"portico: {problem}"] if problem else [])]
            text = Text(clean("\n".join(lines)), no_wrap=True, overflow="ellipsis")
            live.update(text, refresh=True)
            time.sleep(_POLL_S)


def _print_changes(config: str | None, as_json: bool) -> NoReturn:
    screen = Screen(sys.stdout)
    shown: object = None
    while True:
        porticos, problem = list_porticos(config, __version__)
        now = ([portico.significant_state for portico in porticos], problem)
        if now != shown:
            if shown is not None and not as_json:
                screen.print("")
            _print(porticos, problem, as_json)
            sys.stdout.flush()
            shown = now
        screen.check_reader()
        time.sleep(_POLL_S)


def _print(porticos: list[RunningPortico], problem: str, as_json: bool) -> None:
    screen = Screen(sys.stdout)
    if as_json:
        screen.compact([portico.to_json for portico in porticos])
    else:
        for line in _lines(porticos):
            screen.print(line)
    if problem:
        Screen(sys.stderr).print(f"portico: {problem}")


def _lines(porticos: list[RunningPortico]) -> Iterator[str]:
    for number, portico in enumerate(porticos):
        if number:
            yield ""
        yield portico.title
        yield from portico.processes
        if portico.rejected:
            yield "  config not reloaded; keeping the previous one:"
            yield from (f"    {line}" for line in portico.rejected.splitlines())
        for warning in portico.status.get("warnings") or ():
            yield f"  warning: {on_one_line(str(warning))}"
        yield from exposure_lines(portico.status)
        processes = [one for server in portico.servers for one in in_folders(server)]
        if processes:
            rows = [_HEAD, *(_row(server) for server in processes)]
            yield from aligned(_with_folders(_with_kinds(rows, processes), processes))
            yield from _notices(portico.servers)
        elif portico.error:
            yield f"  {portico.error}"
        else:
            yield "  no servers; add one with `portico servers add NAME COMMAND`"


def _row(server: dict[str, Any]) -> tuple[str, ...]:
    tools = "?" if server.get("pending") else str(server.get("tools", "?"))
    left_out = (server.get("omitted") or {}).get("tools")
    if left_out:
        tools = f"{tools} of {server['tools'] + left_out}"
    starts = server.get("starts")
    return (
        str(server.get("server", "?")),
        str(server.get("state", "?")),
        tools,
        duration(server.get("age_s")),
        "-" if starts is None else str(starts),
        shortened(_error(server), _MAX_ERROR),
    )


def _error(server: dict[str, Any]) -> str:
    """The last error, after the time of the next try if there is one."""
    error = in_one_line(str(server.get("error") or "")).removeprefix(f"{server.get('server')} ")
    retry_in_s = server.get("retry_in_s")
    return error if retry_in_s is None else f"next try in {duration(retry_in_s)}; {error}"


def _with_kinds(
    rows: list[tuple[str, ...]], servers: list[dict[str, Any]]
) -> list[tuple[str, ...]]:
    """The rows, with a column of kinds unless all are servers."""
    kinds = [str(server.get("kind", "-")) for server in servers]
    if set(kinds) <= {"server", "-"}:
        return rows
    return [(row[0], kind, *row[1:]) for row, kind in zip(rows, ["kind", *kinds], strict=True)]


def _with_folders(
    rows: list[tuple[str, ...]], servers: list[dict[str, Any]]
) -> list[tuple[str, ...]]:
    """The rows, with a column of the folders that processes run in, if there are any."""
    folders = [str(server.get("folder") or "-") for server in servers]
    if set(folders) <= {"-"}:
        return rows
    placed = zip(rows, ["folder", *folders], strict=True)
    return [(*row[:-1], folder, row[-1]) for row, folder in placed]


def _notices(servers: list[dict[str, Any]]) -> Iterator[str]:
    """Warnings about servers, and the latest changes to their definitions."""
    from portico.core.catalog.history import change_line

    for server in servers:
        yield from _login_notices(server)
        warnings, changes = server.get("warnings"), server.get("changes")
        for warning in warnings[:_MAX_NOTICES] if isinstance(warnings, list) else ():
            yield f"  warning: {on_one_line(str(warning))}"
        for change in changes[:_MAX_NOTICES] if isinstance(changes, list) else ():
            words = change_line(str(server.get("server", "?")), change)
            yield f"  {change.get('time')}  {on_one_line(words)}"


def _login_notices(server: dict[str, Any]) -> Iterator[str]:
    """The login of a server, and a warning if it ends soon."""
    login, name = server.get("login"), str(server.get("server", "?"))
    if not isinstance(login, dict):
        return
    yield f"  {name}: {on_one_line(login_line(login))}"
    if warning := login_warning(name, login):
        yield f"  warning: {on_one_line(warning)}"


def _parser() -> Parser:
    parser = Parser(
        prog="portico status",
        description="Show your running gateways and the state of each of their servers. If the "
        "gateway of your config is not running, show the cached lists of its servers.",
    )
    parser.add_config()
    parser.add_flag("--watch", "keep updating until Ctrl-C")
    parser.add_json("print JSON; with --watch, after each change")
    return parser


def exposure_lines(status: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each client and its exposure, with the reason; equal ones are counted."""
    exposures = status.get("exposures")
    found = exposures if isinstance(exposures, list) else []
    counts = Counter(_words(one) for one in found if isinstance(one, dict))
    for words, count in [*counts.items()][:_MAX_LINES]:
        yield f"  {words} ({count} clients)" if count > 1 else f"  {words}"
    if len(counts) > _MAX_LINES:
        yield f"  and {len(counts) - _MAX_LINES} more clients"


def _words(exposure: Mapping[str, Any]) -> str:
    client = str(exposure.get("client") or "a client")
    expose = str(exposure.get("expose") or "")
    shown = _SHOWN.get(expose, "nothing yet")
    return on_one_line(f"{client} is shown {shown}: {exposure.get('why')}")
