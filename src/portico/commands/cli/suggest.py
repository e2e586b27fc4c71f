"""Suggestions for the next word of a command line, for the scripts of `completion`.

A line is a word, followed by a tab and its description if it has one. `:files`, `:folders` and
`:commands` make the shell complete those itself.
"""

import argparse
import os
from collections.abc import Callable, Iterable, Iterator, Sequence

from portico.commands.cli.main import COMMANDS, module_of
from portico.commands.console.parser import URLS, Parser
from portico.core.model.errors import PorticoError

FILES, FOLDERS, PROGRAMS = ":files", ":folders", ":commands"
_SHELL_COMPLETED = (FILES, FOLDERS, PROGRAMS)
_MAX_HELP = 70

Source = Callable[[str], Iterable[str]]
"""Returns suggestions, given the path of the config."""


def suggestions(words: Sequence[str]) -> Iterator[str]:
    """The lines for the words typed after `portico`; the last word is under the cursor."""
    *before, current = _joined(words) or [""]
    name, equals, value = current.partition("=")
    prefix = f"{name}=" if equals and name.startswith("--") else ""
    if prefix:
        before, current = [*before, name], value
    # A shell that splits words at `=` replaces only the part after it.
    shown = prefix if words and words[-1].startswith(prefix) else ""
    for line in _candidates(before, current):
        if line in _SHELL_COMPLETED:
            yield line
        elif line.startswith(current):
            yield f"{shown}{line}"


def _joined(words: Sequence[str]) -> list[str]:
    """The words, with `--option`, `=` and `value` joined into one word."""
    joined: list[str] = []
    for word in words:
        after_equals = len(joined) > 0 and joined[-1].startswith("--") and joined[-1].endswith("=")
        if joined and ((word == "=" and joined[-1].startswith("--")) or after_equals):
            joined[-1] += word
        else:
            joined.append(word)
    return joined


def _candidates(before: Sequence[str], current: str) -> Iterator[str]:
    if not before or before == ["help"]:
        yield from (f"{name}\t{purpose}" for name, (_, purpose) in COMMANDS.items())
        if not before:
            yield from ("help\texplain a command", "--help", "--version")
        return
    command, *typed = before
    if command not in COMMANDS:
        return
    parser: Parser = module_of(command)._parser()
    plain, waiting = _walk(parser, typed)
    config = _config(typed)
    if _is_in_command(command, plain, typed):
        yield FILES
    elif waiting is not None:
        yield from _values(waiting, config)
    elif current.startswith("-"):
        yield from _options(parser, typed)
    else:
        yield from _plain(parser, command, plain, config)


def _walk(parser: Parser, typed: Sequence[str]) -> tuple[list[str], argparse.Action | None]:
    """The positional words, and the option whose value is being typed."""
    plain: list[str] = []
    waiting: argparse.Action | None = None
    for word in typed:
        if waiting is not None:
            waiting = None
        elif word in parser.options:
            action = parser.options[word]
            waiting = action if action.nargs is None else None
        elif not word.startswith("-"):
            plain.append(word)
    return plain, waiting


def _is_in_command(command: str, plain: Sequence[str], typed: Sequence[str]) -> bool:
    """True if the next word belongs to another program's command line."""
    if "--" in typed:
        return True
    before = {"wrap": 0, "servers": 2}.get(command)
    if before is None or len(plain) <= before or (before and plain[0] != "add"):
        return False
    return not plain[before].startswith(URLS)


def _options(parser: Parser, typed: Sequence[str]) -> Iterator[str]:
    """The options that may still be given."""
    used = {id(parser.options[word]) for word in typed if word in parser.options}
    for name, action in parser.options.items():
        if name.startswith("--") and (id(action) not in used or action.default == []):
            help = " ".join((action.help or "").replace("%%", "%").split())
            yield f"{name}\t{help[:_MAX_HELP]}"


def _values(action: argparse.Action, config: str) -> Iterable[str]:
    if action.choices is not None:
        return action.choices
    if action.metavar in ("FILE", "FOLDER", "DIR"):
        return (FILES if action.metavar == "FILE" else FOLDERS,)
    return _named(f"{action.dest}s", config) if action.dest in ("server", "group") else ()


def _plain(parser: Parser, command: str, plain: Sequence[str], config: str) -> Iterable[str]:
    first = next((action for action in parser.positionals if action.choices), None)
    if first is not None:
        if not plain:
            return first.choices or ()
        if command == "tasks":
            return _task_ids(plain)
        if command != "servers":
            return ()
        if plain[0] == "add":
            return (PROGRAMS,) if len(plain) == 2 else ()
        return _named("servers", config) if len(plain) == 1 else ()
    several, source = _POSITIONALS.get(command, (False, None))
    return source(config) if source and (several or not plain) else ()


def _config(typed: Sequence[str]) -> str:
    """The path after `--config`, or the default one."""
    from portico.core.config.paths import config_file

    for at, word in enumerate(typed):
        if word == "--config" and typed[at + 1 :]:
            return os.path.expanduser(typed[at + 1])
        if word.startswith("--config="):
            return os.path.expanduser(word.removeprefix("--config="))
    return config_file()


def _named(kind: str, config: str) -> Iterable[str]:
    """The names of the config's `servers` or `groups`."""
    from portico.core.config.read import read

    try:
        return list(getattr(read(config, only=()), kind))
    except PorticoError:
        return ()


def _tools(config: str) -> Iterable[str]:
    """The configured servers' tools, from their cached catalogs."""
    from portico import __version__
    from portico.core.config.read import read
    from portico.gateway.serve.cached_catalogs import cached_tools

    try:
        return cached_tools(read(config), __version__)
    except (PorticoError, OSError):
        return ()


def _task_ids(plain: Sequence[str]) -> Iterable[str]:
    """The ids of the tasks that an action applies to; only `cancel` takes several."""
    import asyncio

    from portico.commands.cli.tasks import suggested_ids

    if len(plain) > 1 and plain[0] != "cancel":
        return ()
    try:
        return asyncio.run(suggested_ids(plain[0]))
    except PorticoError:
        return ()


_POSITIONALS: dict[str, tuple[bool, Source]] = {
    "wrap": (False, lambda _: (PROGRAMS,)),
    "run": (True, lambda _: (FILES,)),
    "call": (False, lambda config: (*_tools(config), FILES)),
    "describe": (True, _tools),
    "inspect": (False, lambda _: (FILES,)),
    "agents": (False, lambda _: ("explain",)),
    "logs": (False, lambda config: _named("servers", config)),
}
"""Whether each command takes several positional words, and the suggestions for them."""
