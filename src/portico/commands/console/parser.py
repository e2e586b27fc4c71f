"""The argument parser of every command, which suggests corrections for wrong usage.

The types of arguments, and options of several commands: `argument_types.py`.
"""

import argparse
import os
import re
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from portico.core.model.wording import close_matches, did_you_mean, is_nearly_url, near_options

URLS = ("http://", "https://")
_OPTION = re.compile(r"--[^\s=]+(?==|$)")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_NO_CHOICE = re.compile(r"argument (\S+): invalid choice: '([^']*)' \(choose from (.*)\)")
_NO_VALUE = re.compile(r"argument (?:-\w/)?(--[\w-]+): expected one argument")
_UNKNOWN_LETTER = re.compile(r"unrecognized arguments: (-\w).*", re.DOTALL)
_OTHERWISE = {"--port": "--http", "--host": "--http", "--listen": "--http"}
"""Options of other programs, and ours for the same."""
_EXAMPLES = {"--http": "--http 8000"}


class Parser(argparse.ArgumentParser):
    """Parses a command line. For an unknown option it suggests a similar one, and never shows the
    option's value, which may be a secret."""

    def __init__(self, **about: Any) -> None:
        # An abbreviation that works today could become ambiguous with a new option.
        super().__init__(allow_abbrev=False, **about)

    @property
    def options(self) -> dict[str, argparse.Action]:
        """Each option by its name."""
        return self._option_string_actions

    @property
    def positionals(self) -> list[argparse.Action]:
        """The positional arguments."""
        return self._get_positional_actions()

    def add_config(self) -> None:
        """Add --config."""
        help = "portico.toml or a client's JSON file (default: your portico.toml)"
        self.add_argument("--config", metavar="FILE", help=help)

    def add_pull(self) -> None:
        """Add --pull."""
        help = "pull components of registries first; otherwise only pulled ones are used"
        self.add_flag("--pull", help)

    def add_json(self, help: str = "print JSON") -> None:
        """Add --json."""
        self.add_flag("--json", help)

    def add_flag(self, name: str, help: str) -> None:
        """Add an option without a value."""
        self.add_argument(name, action="store_true", help=help)

    def parse_args(self, args: Iterable[str] | None = None, namespace: Any = None) -> Any:
        """Parse the words; wrong usage ends the command."""
        words = list(args or ())
        self.check_options(words)
        return super().parse_args(words, namespace)

    def parse_intermixed_args(
        self, args: Iterable[str] | None = None, namespace: Any = None
    ) -> Any:
        """Parse the words, with options anywhere among the positional ones."""
        words = list(args or ())
        self.check_options(words)
        return super().parse_intermixed_args(words, namespace)

    def check_options(self, argv: Sequence[str]) -> None:
        """End the command if an option is unknown."""
        for word in argv:
            if word == "--":
                return
            given = _OPTION.match(word)
            if given is not None and given[0] not in self.options:
                self.error(f"there is no option {given[0][:40]}; {self._hint(given[0])}")

    def split_command(
        self, argv: Sequence[str], after: int = 0
    ) -> tuple[Sequence[str], Sequence[str] | None]:
        """Split Portico's own words from those of a command, if there is one.

        A command begins after `--`, or with the first positional word that follows `after` others
        and is not a URL. All further words, including options, belong to the command.
        """
        words = iter(enumerate(argv))
        for at, word in words:
            if word == "--":
                return argv[:at], argv[at + 1 :]
            if word.startswith("-"):
                self.check_options((word,))
                action = self.options.get(word)
                if action is not None and action.nargs is None and argv[at + 1 : at + 2] != ["--"]:
                    next(words, None)  # its value
            elif after:
                after -= 1
            elif word.startswith(URLS):
                after = len(argv)
            else:
                self._check_program(word)
                return argv[:at], argv[at:]
        return argv, None

    def _check_program(self, word: str) -> None:
        """End the command if this is a mistyped URL, a variable, or a command line in quotes."""
        if os.path.exists(word):
            return
        if is_nearly_url(word):
            self.error("a URL begins with https:// or http://")
        if _ASSIGNMENT.match(word):
            self.error("give a variable as --env NAME=VALUE, before the command")
        if len(word.split()) > 1:
            self.error("the command is quoted as one word; remove the quotes: COMMAND ARGS...")

    def error(self, message: str) -> NoReturn:
        """End the command; the message has the correction."""
        if (found := _NO_CHOICE.fullmatch(message)) is not None:
            choices = re.findall(r"'([^']*)'|([^\s',]+)", found[3])
            names = [quoted or plain for quoted, plain in choices]
            hint = did_you_mean(close_matches(found[2], names)) or f"choose from {', '.join(names)}"
            message = f"{found[1]} cannot be {found[2][:40]!r}; {hint}"
        elif (found := _NO_VALUE.fullmatch(message)) is not None:
            option = found[1]
            action = self.options[option]
            value = action.metavar or action.dest.upper()
            example = f", such as {_EXAMPLES[option]}" if option in _EXAMPLES else ""
            message = f"{option} needs {value}{example}"
        elif (found := _UNKNOWN_LETTER.fullmatch(message)) is not None:
            message = f"there is no option {found[1]}; {self._hint(found[1])}"
        super().error(message)

    def _hint(self, given: str) -> str:
        ours = self.options.get(_OTHERWISE.get(given, ""))
        if ours is not None:
            return f"use {ours.option_strings[-1]} {ours.metavar}"
        return did_you_mean(near_options(given, self.options)) or f"`{self.prog} --help` lists all"
