"""`portico call` at a real terminal: questions, colours, Ctrl-C, and nothing left behind."""

import os
import pty
import select
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from tests.upstream.connections.fakes import WAIT_S, bad_server

SERVER = '''
from portico import Context, Server, ToolError

server = Server("demo")
SIZES = {"type": "string", "enum": ["small", "large"], "default": "small"}
FORM = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Your name", "minLength": 2},
        "age": {"type": "integer", "minimum": 1},
        "size": SIZES,
        "vegan": {"type": "boolean"},
    },
    "required": ["name"],
}


@server.tool
async def order(context: Context) -> str:
    """Ask, then order."""
    answer = await context.elicit("What may it be?", FORM)
    return f"{answer.action} {sorted(answer.content.items())}"


@server.tool
async def warm(context: Context) -> str:
    """Ask in the middle of it."""
    await context.progress(1, 2, "warming up")
    levels = {"type": "string", "enum": ["2", "1"]}
    form = {"type": "object", "properties": {"level": levels, "heat": {"type": "number"}}}
    answer = await context.elicit("How warm?", form)
    return f"{sorted(answer.content.items())}"


@server.tool
async def visit(context: Context) -> str:
    """Ask for a visit."""
    return (await context.elicit_url("Please log in", "https://login.test/x?a=b", id="1")).action


@server.tool
async def evil() -> str:
    """Tries to take over."""
    raise ToolError("\\x1b]0;owned\\x07done")
'''


class Terminal:
    """A process whose every stream is a terminal of ours."""

    def __init__(self, process: "subprocess.Popen[bytes]", fd: int) -> None:
        self.process = process
        self.screen = ""
        self._fd = fd

    def until(self, shown: str) -> None:
        """Read until this is on the screen."""
        deadline = time.monotonic() + WAIT_S
        while shown not in self.screen:
            assert select.select([self._fd], [], [], deadline - time.monotonic())[0], self.screen
            assert self._read(), f"ended before {shown!r}: {self.screen}"

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def answer(self, shown: str, text: str) -> None:
        """Wait for a prompt, and type; what was on the screen is done with."""
        self.until(shown)
        self.screen = ""
        self.type(f"{text}\n")

    def end(self) -> int:
        """Read to the end; the exit code."""
        while self._read():
            pass
        return self.process.wait(WAIT_S)

    def _read(self) -> bool:
        try:
            data = os.read(self._fd, 65536)
        except OSError:  # Linux says EIO once nobody holds the other side
            return False
        self.screen += data.decode(errors="replace").replace("\r\n", "\n")
        return bool(data)


def calling(*argv: str) -> AbstractContextManager[Terminal]:
    return at_terminal("call", *argv)


@contextmanager
def at_terminal(*words: str) -> Iterator[Terminal]:
    """A command at a terminal of its own."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "portico", *words]
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    os.close(theirs)
    try:
        yield Terminal(process, ours)
    finally:
        process.kill()
        process.wait()
        os.close(ours)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("demo") / "server.py"
    path.write_text(SERVER)
    return str(path)


@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_a_person_fills_in_a_form_looks_at_it_and_sends_it(demo: str, era: str) -> None:
    with calling(demo, "order", "--era", era) as terminal:
        terminal.until("requests input: What may it be?")
        terminal.answer("Your name (string)\n  > ", "")  # required, so asked again
        terminal.answer("enter at least 2 characters", "A")
        terminal.answer("> ", "Ada")
        terminal.answer("age (integer, optional)\n  > ", "none")
        terminal.answer("enter a whole number", "36")
        terminal.answer("2. large", "2")
        terminal.answer("vegan (boolean, optional)\n  > ", "perhaps")
        terminal.answer("enter yes or no", "no")
        terminal.answer("Send this? [Y]es, [e]dit, [n]o: ", "y")
        assert terminal.end() == 0
    expected = "accept [('age', 36), ('name', 'Ada'), ('size', 'large'), ('vegan', False)]\n"
    assert terminal.screen.endswith(expected)


def test_a_question_takes_the_place_of_progress_and_each_choice_can_be_made(
    demo: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    with calling(demo, "warm") as terminal:
        terminal.until("2. 1")
        assert "warming up\r\x1b[2K" in terminal.screen
        terminal.answer("> ", "1")
        terminal.answer("heat", "nan")
        terminal.answer("enter a number", "7")
        terminal.answer("Send this?", "y")
        assert terminal.end() == 0
    assert terminal.screen.endswith("[('heat', 7.0), ('level', '1')]\n")


def test_a_person_may_start_again_take_the_default_and_decline(demo: str) -> None:
    with calling(demo, "order") as terminal:
        for name in ("Ada", "Bob"):
            terminal.answer("Your name", name)
            terminal.answer("age", "")
            terminal.answer('default "small"', "")
            terminal.answer("vegan", "")
            terminal.until("Send this?")
            assert f'"{name}"' in terminal.screen
            assert '"small"' in terminal.screen
            terminal.answer("Send this?", "e" if name == "Ada" else "n")
        assert terminal.end() == 0
    assert terminal.screen.endswith("decline []\n")


def test_closing_the_input_cancels(demo: str) -> None:
    with calling(demo, "order") as terminal:
        terminal.until("> ")
        terminal.type("\x04")
        assert terminal.end() == 0
    assert terminal.screen.endswith("cancel []\n")


def test_a_page_to_visit_is_shown_in_full_and_agreed_to(demo: str) -> None:
    with calling(demo, "visit") as terminal:
        terminal.until("URL:  https://login.test/x?a=b\n")
        terminal.until("host: login.test")
        terminal.answer("[y/N] ", "y")
        assert terminal.end() == 0
    assert terminal.screen.endswith("accept\n")


def test_a_failing_tool_is_red_and_cannot_take_over_the_terminal(demo: str) -> None:
    with calling(demo, "evil") as terminal:
        assert terminal.end() == 1
    assert "\x1b[31m\\u001b]0;owned\\u0007done\x1b[0m" in terminal.screen
    assert "\x1b]0;owned" not in terminal.screen


def test_ctrl_c_at_a_question_ends_it(demo: str) -> None:
    with calling(demo, "order") as terminal:
        terminal.until("> ")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.end() == 130
    assert "Traceback" not in terminal.screen


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_leaves_no_process_behind(
    number: signal.Signals, code: int, tmp_path: Path
) -> None:
    fifo = tmp_path / "alive"
    os.mkfifo(fifo)
    target = shlex.join(bad_server("stubborn", str(fifo)).argv)
    with calling(target, "act", "--era", "legacy") as terminal, open(fifo, "rb", 0) as alive:
        assert alive.read(5) == b"alive"
        terminal.until("ok")
        terminal.process.send_signal(number)
        assert terminal.process.wait(WAIT_S) == code
        assert alive.read(1) == b""  # its end closes only with the process
