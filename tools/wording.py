"""Advice: wording that a native engineer would not use, in messages, docstrings and comments.

.venv/bin/python -m tools.wording [--most NUMBER] [PACKAGE ...]
"""

import argparse
import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).resolve().parents[1] / "src" / "portico"

_HABITS = {
    r"(?<!there )\b(?:is|are|was|were) no (?!longer\b|more\b|later\b)": '"is not a ..."',
    r"(?<!there )\b(?:is|are) none\b": '"is not valid", or what is wrong with it',
    r"\banew\b": '"again"',
    r"\btaken over\b": '"applied" or "reloaded"',
    r"\bin the (?:clear|open)\b": '"unencrypted"',
    r"\bcounts? from\b": '"takes effect", or "restart to apply"',
    r"\bfares?\b": '"state" or "status"',
    r"\bwhoever\b": "a noun",
    r"(?:^|[.;:] )(?:what|who|one that|those (?:of|that)) (?![^.;:]*\?)": "a noun, as the subject",
    r"\b(?:told|tells)\b": '"reports", "notifies", or the fact itself',
    r"\b(?:asks|asked|asking)\b": '"requests", "queries" or "sends"',
    r"\b(?:says|said)\b": '"reports", "returns", or the fact itself',
    r"\b(?:hears?|heard|greets?)\b": '"receives" or "connects"',
    r"\b(?:nobody|somebody)\b": "a noun from the glossary",
    r"\bwants?\b": '"requires" or "expects"',
    r"\bmend\b": '"fix"',
    r"\bagain and again\b": '"repeatedly"',
    r"\blook(?:s|ed)? after\b": '"supervised" or "restarted"',
    r"\b(?:left|leaves?) alone\b": '"paused" or "not retried"',
    r"\b(?:go|goes|going) on\b": '"continues"',
    r"\blast words\b": '"stderr"',
    r"\bhangs? up\b": '"closes the connection"',
    r"\bcannot be asked\b|\bcould not be (?:asked|heard)\b": '"is unreachable" or "cannot send to"',
    r"\bleads? (?:nowhere|elsewhere)\b": '"cannot be resolved", "points to another host"',
    r"\bso many\b": '"at most N" or "number of"',
    r"\bunder way\b": '"in progress" or "running"',
    r"\b(?:is|are|has) (?:gone|there twice)\b": '"was deleted", "disconnected" or "is set twice"',
    r"\bstands?\b|\bholds? no\b": '"is" or "contains no"',
    r"\bpacked\b": '"compressed"',
    r"\bswitch(?:ed)? (?:one )?o(?:n|ff)\b": '"enabled" or "disabled"',
    r"\b(?:to )?have (?:it|a \w+|a new \w+) made\b": '"to create it"',
    r"\bwithout end\b|\bin circles\b|\bcame about\b": "the limit or the step that failed",
}
HABITS = [(re.compile(habit, re.IGNORECASE), better) for habit, better in _HABITS.items()]
"""Each pattern, and the wording to use in its place."""
_QUOTED = re.compile(r"`[^`]*`|\{[^{}|]*\}")


_LIST = re.compile(r"\n(\s+[\w*-]+)+\s*")
"""A string of many names, to be split."""


class Text(NamedTuple):
    """A message, docstring or comment, and its file, seen from the package."""

    file: str
    words: str

    @property
    def package(self) -> str:
        """The first part of the file's path."""
        return self.file.partition("/")[0]


class Found(NamedTuple):
    """A text that has some of the habits, and what to write in place of each."""

    text: Text
    better: list[str]

    def __str__(self) -> str:
        return f"{self.text.file}: {self.text.words}\n    write {'; '.join(self.better)}"


def check(given: Iterable[Text]) -> list[Found]:
    """Return the texts that have one of the habits, outside quoted names and placeholders."""
    found = []
    for text in given:
        words = _QUOTED.sub("X", text.words)
        better = [better for habit, better in HABITS if habit.search(words)]
        if better:
            found.append(Found(text, better))
    return found


def sources() -> dict[str, str]:
    """Return every file of the package with its content, modules outside packages first."""
    files = sorted(SOURCE.rglob("*.py"), key=lambda path: (path.parent != SOURCE, path))
    return {path.relative_to(SOURCE).as_posix(): path.read_text() for path in files}


def messages(files: Mapping[str, str]) -> Iterator[Text]:
    """Every string of some files that looks like a text: it has a letter and a space."""
    for file, source in files.items():
        for words in dict.fromkeys(_strings(ast.parse(source))):
            if " " in words and any(map(str.isalpha, words)) and not _LIST.fullmatch(words):
                yield Text(file, " ".join(words.split()))


def _strings(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Expr(value=ast.Constant()):
            return  # a docstring
        case ast.Constant(value=str(words)):
            yield words
        case ast.JoinedStr(values=parts):
            yield "".join(str(x.value) if isinstance(x, ast.Constant) else "{value}" for x in parts)
    for part in ast.iter_child_nodes(node):
        if not (isinstance(node, ast.JoinedStr) and isinstance(part, ast.Constant)):
            yield from _strings(part)


def prose(files: Mapping[str, str]) -> Iterator[Text]:
    """Every docstring and comment of some files."""
    for file, source in files.items():
        for node in ast.walk(ast.parse(source)):
            match node:
                case ast.Expr(value=ast.Constant(value=str(words))):
                    yield Text(file, " ".join(words.split()))
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                yield Text(file, token.string.lstrip("#: "))


def advice(found: Sequence[Found], most: int | None = None) -> str:
    """How many texts were found, and the first of them."""
    return "\n".join((f"wording to improve: {len(found)}", *map(str, found[:most])))


def main() -> None:
    """Print the texts with such wording, messages first."""
    parser = argparse.ArgumentParser(description="Find wording to avoid.")
    parser.add_argument("packages", nargs="*", metavar="PACKAGE", help="only in this one")
    parser.add_argument("--most", type=int, help="print only so many")
    given = parser.parse_args()
    files = sources()
    found = check([*messages(files), *prose(files)])
    if given.packages:
        found = [each for each in found if each.text.package in given.packages]
    print(advice(found, given.most))


if __name__ == "__main__":
    main()
