"""The problems of a config file: where each is, what is wrong, and how to fix it."""

from collections.abc import Iterable
from itertools import islice

from msgspec import Struct

from portico.core.model.errors import PorticoError
from portico.core.model.wording import close_matches, did_you_mean

Path = tuple[str | int, ...]
"""The keys that lead to a value in a file, outermost first."""

MAX_LISTED = 20
_MAX_HINTED = 200
_MAX_KEY = 60
_MAX_OPTIONS = 500
_AS_LETTERS = str.maketrans("_-", "aa")


class ConfigError(PorticoError):
    """A config file cannot be used; the message lists every problem."""

    exit_code = 1

    def __init__(self, *problems: str) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))


class ConfigProblem(Struct, frozen=True):
    """One error or warning about a config file."""

    at: Path
    what: str
    remedy: str = ""
    line: int = 0
    """Its line, if that is not the line of its key."""

    def __str__(self) -> str:
        key = f"{dotted(self.at)}: " if self.at else ""
        return f"{key}{self.what}{f'; {self.remedy}' if self.remedy else ''}"


class Report:
    """Collects the problems found while a file is read."""

    def __init__(self) -> None:
        self.problems: list[ConfigProblem] = []
        self.warnings: list[ConfigProblem] = []
        self.unresolved: list[ConfigProblem] = []
        """References that cannot be resolved: they stop only the servers that need them."""

    def wrong(self, at: Path, what: str, remedy: str = "") -> None:
        """Add an error."""
        self.problems.append(ConfigProblem(at, what, remedy))

    def suggest(self, text: str, options: Iterable[str]) -> str:
        """Return a `suggestion`, unless the report is already long: finding one is slow."""
        found = len(self.problems) + len(self.warnings)
        return suggestion(text, options) if found < _MAX_HINTED else ""

    def warn(self, at: Path, what: str, remedy: str = "") -> None:
        """Add a warning."""
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
    """A key, shortened if long, and in quotes unless it is a plain word."""
    cut = text if len(text) <= _MAX_KEY else f"{text[:_MAX_KEY]}…"
    return cut if text.isascii() and text.translate(_AS_LETTERS).isalnum() else ascii(cut)


def suggestion(text: str, options: Iterable[str]) -> str:
    """`did you mean command?`, or the options to choose from."""
    known = list(islice(options, _MAX_OPTIONS))
    if meant := did_you_mean(map(quoted, close_matches(text[:_MAX_KEY], known))):
        return meant
    return f"choose from {', '.join(map(quoted, known[:MAX_LISTED]))}" if known else ""
