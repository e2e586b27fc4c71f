"""`portico servers`: list or refresh the servers that run behind Portico now."""

import argparse
import os
import sys
from typing import Any

import msgspec

from portico.cli.render import Screen
from portico.config.paths import state_dir
from portico.model.errors import PorticoError
from portico.transport.control import ask, names

_STATUS_S = 5.0


def main(argv: list[str]) -> int:
    """Ask every Portico of this user, or the one in front of the named server."""
    options = _parser().parse_intermixed_args(argv)
    folder = os.path.join(state_dir(), "control")
    running = _chosen(_running(folder), options.name)
    if options.do == "refresh":
        running = {name: _asked(folder, name, "refresh", options.timeout) for name in running}
    answers = list(running.values())
    if options.json:
        Screen(sys.stdout).json(msgspec.json.encode(answers))
    else:
        for answer in answers:
            if answer["ok"]:
                Screen(sys.stdout).say(_line(answer))
    failed = [answer for answer in answers if not answer["ok"]]
    for answer in failed:
        Screen(sys.stderr).say(f"portico: {_called(answer)}: {answer.get('error')}")
    return 1 if failed else 0


def _running(folder: str) -> dict[str, dict[str, Any]]:
    """What each that lives says of itself, by its socket."""
    found = {}
    for name in names(folder):
        answer = _asked(folder, name, "status", _STATUS_S)
        if answer:
            found[name] = answer
    if not found:
        raise PorticoError("no server runs behind Portico now; `portico wrap` starts one")
    return found


def _chosen(running: dict[str, dict[str, Any]], wanted: str | None) -> dict[str, dict[str, Any]]:
    """Those of this name; if there are none, those that have it in theirs."""
    if wanted is None:
        return running
    called = {name: _called(answer) for name, answer in running.items()}
    chosen = [name for name in running if called[name] == wanted]
    chosen = chosen or [name for name in running if wanted in called[name]]
    if not chosen:
        there = ", ".join(sorted(set(called.values())))
        raise PorticoError(f"no server {wanted!r} runs behind Portico now; there is {there}")
    return {name: running[name] for name in chosen}


def _asked(folder: str, name: str, do: str, within_s: float) -> dict[str, Any]:
    """Its answer; empty if it is dead."""
    answer = ask(folder, name, do, within_s)
    return {"pid": name.partition(".")[0], **answer} if answer is not None else {}


def _called(answer: dict[str, Any]) -> str:
    return str(answer.get("server") or f"process {answer.get('pid')}")


def _line(answer: dict[str, Any]) -> str:
    connections = answer.get("connections") or []
    states = ", ".join(_state(connection) for connection in connections) or "not started"
    lists = ", ".join(f"{many} {kind}" for kind, many in (answer.get("lists") or {}).items())
    return f"{_called(answer)}  pid {answer['pid']}  {states}  {lists or 'lists not known yet'}"


def _state(connection: dict[str, Any]) -> str:
    busy = connection.get("busy")
    return f"{connection.get('state')} ({busy} calls)" if busy else str(connection.get("state"))


def _parser() -> argparse.ArgumentParser:
    from portico.cli.words import seconds

    parser = argparse.ArgumentParser(
        prog="portico servers",
        description="List the servers that run behind Portico now, or have their lists asked for "
        "anew.",
    )
    add = parser.add_argument
    add("do", choices=("list", "refresh"), help="what to do")
    add("name", nargs="?", metavar="NAME", help="only the server of this name")
    add("--json", action="store_true", help="print what they answer, for programs")
    add(
        "--timeout",
        type=seconds,
        default=90.0,
        metavar="S",
        help="how long each may take to refresh (default 90)",
    )
    return parser
