"""Words of the command line that several commands read alike."""

import argparse

from portico.upstream.headers import unfit_header


def header(text: str) -> tuple[str, str]:
    """`NAME: VALUE`."""
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise argparse.ArgumentTypeError("give it as 'NAME: VALUE'")
    name, value = name.strip(), value.strip()
    if why := unfit_header(name, value):
        raise argparse.ArgumentTypeError(why)
    return name, value


def pair(text: str) -> tuple[str, str]:
    """`NAME=VALUE`."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError("give it as NAME=VALUE")
    return name, value


def milliseconds(text: str) -> int:
    """A whole number of milliseconds, or none."""
    if not text.isdecimal() or len(text) > 7:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of milliseconds")
    return int(text)


def seconds(text: str) -> float:
    """A time that is more than none and less than for ever."""
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return found
