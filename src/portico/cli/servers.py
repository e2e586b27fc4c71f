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

_Told = list[tuple[str, dict[str, Any]]]
"""What a Portico said, beside the name of its socket."""

_STATUS_S = 5.0


def main(argv: list[str]) -> int:
    """Ask every Portico of this user, or the one in front of the named server."""
    options = _parser().parse_intermixed_args(argv)
    folder = os.path.join(state_dir(), "control")
    running = _chosen(_running(folder), options.name)
    if options.do == "refresh":
        answers = [_refreshed(folder, name, told, options.timeout) for name, told in running]
    else:
        answers = [told for _, told in running]
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


def _running(folder: str) -> _Told:
    """What each that lives says of itself."""
    asked = [(name, ask(folder, name, "status", _STATUS_S)) for name in names(folder)]
    found = [
        (name, {"pid": name.partition(".")[0], **told}) for name, told in asked if told is not None
    ]
    if not found:
        raise PorticoError("no server runs behind Portico now; `portico wrap` starts one")
    return found


def _chosen(running: _Told, wanted: str | None) -> _Told:
    """Those of this name; if there are none, those that have it in theirs."""
    if wanted is None:
        return running
    chosen = [one for one in running if _called(one[1]) == wanted]
    chosen = chosen or [one for one in running if wanted in _called(one[1])]
    if not chosen:
        there = ", ".join(sorted({_called(told) for _, told in running}))
        raise PorticoError(f"no server {wanted!r} runs behind Portico now; there is {there}")
    return chosen


def _refreshed(folder: str, name: str, told: dict[str, Any], within_s: float) -> dict[str, Any]:
    """What it says when it has asked its server; one that fails says less of itself."""
    answer = ask(folder, name, "refresh", within_s) or {"ok": False, "error": "it has ended"}
    return {"pid": told["pid"], "server": told.get("server", ""), **answer}


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
