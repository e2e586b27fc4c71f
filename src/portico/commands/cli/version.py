"""`portico version`: print the version."""

from portico import __version__
from portico.commands.console.parser import Parser


def main(argv: list[str]) -> int:
    """Print the version."""
    _parser().parse_args(argv)
    print(f"portico {__version__}")
    return 0


def _parser() -> Parser:
    return Parser(
        prog="portico version",
        description="Show the version of Portico; `portico --version` is the same.",
    )
