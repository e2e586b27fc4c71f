"""Argument types and option helpers that several commands share."""

import argparse
from collections.abc import Callable
from typing import Any

from portico.core.http1.headers import header_problem


def header(text: str) -> tuple[str, str]:
    """`NAME: VALUE`."""
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise argparse.ArgumentTypeError("expected 'NAME: VALUE'")
    name, value = name.strip(), value.strip()
    if why := header_problem(name, value):
        raise argparse.ArgumentTypeError(why)
    return name, value


def pair(text: str) -> tuple[str, str]:
    """`NAME=VALUE`."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError("expected NAME=VALUE")
    return name, value


def integer(what: str, minimum: int, maximum: int) -> Callable[[str], int]:
    """Return a parser of integers within bounds; `what` names the expected value in errors."""

    def read(text: str) -> int:
        if not text.isdecimal() or len(text) > 9 or not minimum <= int(text) <= maximum:
            raise argparse.ArgumentTypeError(f"{text[:40]!r} is not {what}")
        return int(text)

    return read


def seconds(text: str) -> float:
    """A positive, finite number of seconds."""
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return found


Add = Callable[..., object]
"""The `add_argument` of a parser, or of a group in one."""
Kind = Callable[[str], Any]


def valued(add: Add, name: str, kind: Kind, metavar: str, what: str, **more: Any) -> None:
    """Add an option that takes a value."""
    add(name, type=kind, metavar=metavar, help=what, **more)


def repeatable(add: Add, name: str, kind: Kind, metavar: str, what: str) -> None:
    """Add an option that may be given several times."""
    valued(add, name, kind, metavar, f"{what}; repeatable", action="append", default=[])


def add_grant(add: Add) -> None:
    """Add the option that grants something to a sandboxed component."""
    what = "grant something to a sandboxed component, such as calc:files=DIR:ro or calc:http=HOST"
    repeatable(add, "--grant", str, "NAME:KEY=VALUE", what)
