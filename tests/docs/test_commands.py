"""Every `portico` line of the docs is one that the command understands, and the shown output is so.

A block whose commands stand behind a `$` is run, in a folder that has the page's files and the
examples; `...` in its output stands for anything.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path

import pytest

from portico.commands.cli.main import COMMANDS, main, module_of
from tests.docs.pages import ROOT, Block, blocks, headings, pages, prose, section

_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
_OTHERS = frozenset(("--loop",))
"""Of the tests, not of a command."""
_LISTED = re.compile(r" {2,}[a-z]|--version")
"""A line of a table of commands, with words on each."""
_BEFORE = {"wrap": 0, "servers": 2}
"""Commands that take another program's command line, and how many plain words stand before it."""
MOST_WORDS = 150
"""Of one command, outside of code and tables; the rest is explained on a page of its own."""
EXPLAINED = "docs/use/commands-explained.md"
_SHELL = ("", "console", "sh", "shell")


@cache
def _options(command: str) -> frozenset[str]:
    with redirect_stdout(StringIO()) as printed:
        assert main([command, "--help"]) == 0
    return frozenset(_OPTION.findall(printed.getvalue()))


def _portico(arguments: list[str], folder: Path) -> "subprocess.CompletedProcess[str]":
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    return subprocess.run(
        [sys.executable, "-m", "portico", *arguments],
        cwd=folder,
        env={**os.environ, "PATH": path, "PORTICO_HOME": str(folder / "home")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def _shown() -> Iterator[tuple[str, str]]:
    """Each `portico` line of the docs, with where it stands."""
    for page in pages():
        for block in blocks(page):
            if block.language not in _SHELL:
                continue
            for number, line in enumerate(block.text.splitlines(), block.line):
                if line.removeprefix("$ ").startswith("portico "):
                    yield f"{page}:{number}", line.removeprefix("$ ")


def _ours(command: str, arguments: list[str]) -> Sequence[str]:
    """The words that are not those of another program."""
    if command in _BEFORE:
        parser = module_of(command)._parser()
        ours: Sequence[str] = parser.split_command(arguments, _BEFORE[command])[0]
        return ours
    return arguments[: arguments.index("--")] if "--" in arguments else arguments


@pytest.mark.parametrize(("place", "line"), [pytest.param(p, x, id=p) for p, x in _shown()])
def test_a_command_that_is_shown_exists_with_its_options(place: str, line: str) -> None:
    _, command, *arguments = shlex.split(line, comments=True)
    if command.startswith("-"):
        return
    assert command in COMMANDS, place
    used = {word.partition("=")[0] for word in _ours(command, arguments) if word.startswith("--")}
    assert used <= _options(command), place


@pytest.mark.parametrize(
    ("place", "line"), [pytest.param(p, x, id=p) for p, x in _shown() if not _LISTED.search(x)]
)
def test_a_command_that_is_shown_is_no_wrong_usage(place: str, line: str) -> None:
    _, command, *arguments = shlex.split(line, comments=True)
    module = module_of(command)
    try:
        if hasattr(module, "_options"):
            module._options(arguments)
        else:
            module._parser().parse_intermixed_args(arguments)
    except SystemExit:
        pytest.fail(f"{place}: {line}")


@pytest.mark.parametrize("page", pages())
def test_a_command_in_the_text_exists_with_its_options(page: str) -> None:
    for words in re.findall(r"`portico ([a-z]+\b[^`]*)`", prose(page)):
        command = words.split()[0]
        assert command in (*COMMANDS, "help"), f"{page}: portico {words}"
        if command in COMMANDS:
            ours = " ".join(_ours(command, words.split()[1:]))
            assert set(_OPTION.findall(ours)) <= _options(command), f"{page}: portico {words}"


@pytest.mark.parametrize("page", pages())
def test_an_option_in_the_text_is_one_of_some_command(page: str) -> None:
    known = _OTHERS.union(*map(_options, COMMANDS))
    spans = re.findall(r"`(--[^`]*)`", prose(page))
    assert [span for span in spans if not set(_OPTION.findall(span)) <= known] == []


def _sessions() -> Iterator[tuple[str, Block]]:
    for page in pages():
        for block in blocks(page):
            if block.language in _SHELL and block.text.startswith("$ portico "):
                yield page, block


@pytest.mark.parametrize(
    ("page", "block"), [pytest.param(p, b, id=f"{p}:{b.line}") for p, b in _sessions()]
)
def test_a_command_prints_what_the_page_shows(page: str, block: Block, tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for saved in blocks(page):
        saved.save(tmp_path)
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        line, _, shown = part.partition("\n")
        ran = _portico(shlex.split(line, comments=True)[1:], tmp_path)
        # A person sees both; progress is gone by then.
        printed = re.sub(r"^progress .*\n", "", ran.stderr, flags=re.MULTILINE) + ran.stdout
        wanted = ".*".join(map(re.escape, shown.rstrip().split("...")))
        assert re.fullmatch(wanted, printed.rstrip(), re.DOTALL), f"{line}\n{printed}"


def test_the_first_server_of_the_readme_can_be_called_and_looked_at(tmp_path: Path) -> None:
    first = next(block for block in blocks("README.md") if block.language == "python")
    (tmp_path / "weather.py").write_text(first.text)
    assert _portico(["call", "weather.py", "add", '{"a": 2}'], tmp_path).stdout == "3\n"
    assert "Add two numbers." in _portico(["inspect", "weather.py"], tmp_path).stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_of_a_command_is_documented(command: str) -> None:
    described = set(_OPTION.findall(section("docs/use/commands.md", f"portico {command}")))
    assert described == _options(command) - {"--help"}


def test_the_page_of_commands_is_a_reference() -> None:
    text = re.sub(r"^\|.*$", "", prose("docs/use/commands.md"), flags=re.MULTILINE)
    sections = {part.partition("\n")[0]: part for part in text.split("\n## ")[1:]}
    assert [name for name, part in sections.items() if len(part.split()) > MOST_WORDS] == []
    explained = {f"portico {command}" for command in COMMANDS} & set(headings(EXPLAINED))
    missing = [name for name in explained if f"({Path(EXPLAINED).name}#" not in sections[name]]
    assert explained
    assert missing == []
