"""The parser of every command: wrong usage is told with what would be right."""

import argparse
import re
from collections.abc import Iterable, Sequence
from typing import Any

URLS = ("http://", "https://")
_OPTION = re.compile(r"--[^\s=]+(?==|$)")


class Parser(argparse.ArgumentParser):
    """Reads a command line. Of an option that there is not it names the nearest that there is,
    and never its value, which may be a secret."""

    def __init__(self, **about: Any) -> None:
        # A short form that works today would be another option's, or nobody's, tomorrow.
        super().__init__(allow_abbrev=False, **about)

    def parse_args(self, args: Iterable[str] | None = None, namespace: Any = None) -> Any:
        """What the words say; wrong usage ends the command."""
        words = list(args or ())
        self.check_options(words)
        return super().parse_args(words, namespace)

    def parse_intermixed_args(
        self, args: Iterable[str] | None = None, namespace: Any = None
    ) -> Any:
        """The same, with options anywhere among the other words."""
        words = list(args or ())
        self.check_options(words)
        return super().parse_intermixed_args(words, namespace)

    def check_options(self, argv: Sequence[str]) -> None:
        """End the command if an option is unknown."""
        for word in argv:
            if word == "--":
                return
            given = _OPTION.match(word)
            if given is not None and given[0] not in self._option_string_actions:
                self.error(f"there is no option {given[0][:40]}; {self._hint(given[0])}")

    def check_url(self, argv: Sequence[str], word: str, usage: str) -> None:
        """End the command if a word is no URL: it may be a slip in one, or a command without its
        `--`, whose own options are then among ours."""
        if word.startswith(URLS):
            return
        self.check_options(argv[: argv.index(word)])
        if "://" in word or ("." in word and "/" in word.lstrip("./")):
            self.error("a URL begins with https:// or http://; put `--` before a command")
        self.error(f"put `--` before the command: {usage} -- COMMAND ARGS...")

    def _hint(self, given: str) -> str:
        from difflib import get_close_matches

        known = [name for name in self._option_string_actions if name.startswith("--")]
        near = get_close_matches(given, known, 1)
        return f"did you mean {near[0]}?" if near else f"`{self.prog} --help` lists all"
