"""What is wrong with a file, all of it: where, what, and what to do."""

from collections.abc import Iterable
from itertools import islice

from msgspec import Struct

from portico.model.errors import PorticoError
from portico.model.wording import close_matches, did_you_mean

Path = tuple[str | int, ...]
"""The keys that lead to something in a file, from the outside."""

MAX_LISTED = 20
_MAX_HINTED = 200
_MAX_KEY = 60
_MAX_OPTIONS = 500
_AS_LETTERS = str.maketrans("_-", "aa")


class ConfigError(PorticoError):
    """A config file cannot be used as it is; the message has every problem."""

    exit_code = 1

    def __init__(self, *problems: str) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))


class ConfigProblem(Struct, frozen=True):
    """One thing that is wrong, or that its writer should know."""

    at: Path
    what: str
    remedy: str = ""
    line: int = 0
    """Where it is, if that is not simply the line of its key."""

    def __str__(self) -> str:
        key = f"{dotted(self.at)}: " if self.at else ""
        return f"{key}{self.what}{f'; {self.remedy}' if self.remedy else ''}"


class Report:
    """Collects what is found while a file is read."""

    def __init__(self) -> None:
        self.problems: list[ConfigProblem] = []
        self.warnings: list[ConfigProblem] = []
        self.unresolved: list[ConfigProblem] = []
        """Values that cannot be had from elsewhere: they stop only the server that needs them."""

    def wrong(self, at: Path, what: str, remedy: str = "") -> None:
        """It cannot be used like this."""
        self.problems.append(ConfigProblem(at, what, remedy))

    def suggest(self, text: str, options: Iterable[str]) -> str:
        """`nearest`, which is slow, and of no use once there is more to tell than is told."""
        found = len(self.problems) + len(self.warnings)
        return suggestion(text, options) if found < _MAX_HINTED else ""

    def warn(self, at: Path, what: str, remedy: str = "") -> None:
        """It can, but not all of it does something."""
        self.warnings.append(ConfigProblem(at, what, remedy))


def dotted(path: Path) -> str:
    """`servers.github.args[1]`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{quoted(part)}" if text else quoted(part)
    return text


def quoted(text: str) -> str:
    """A key as it is, or in quotes if it is no plain word; never long."""
    cut = text if len(text) <= _MAX_KEY else f"{text[:_MAX_KEY]}…"
    return cut if text.isascii() and text.translate(_AS_LETTERS).isalnum() else ascii(cut)


def suggestion(text: str, options: Iterable[str]) -> str:
    """`did you mean command?`, or what there is to choose from."""
    known = list(islice(options, _MAX_OPTIONS))
    if meant := did_you_mean(map(quoted, close_matches(text[:_MAX_KEY], known))):
        return meant
    return f"choose from {', '.join(map(quoted, known[:MAX_LISTED]))}" if known else ""
