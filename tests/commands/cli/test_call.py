"""`portico call`: readable by default, JSON on demand, and every failure in words."""

import io
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from portico.commands.cli.main import main
from tests.upstream.connections.fakes import bad_server

SERVER = '''
import sys

from portico import Context, Image, Server, ToolError

server = Server("demo", version="1.0")


@server.tool
async def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@server.tool
async def shout(text: str) -> str:
    """Say it louder."""
    return text.upper()


@server.tool
async def file(code: str | None = None, size: float | str = 0) -> str:
    """File something."""
    return f"{code!r} {size!r}"


@server.tool
async def picture() -> Image:
    """A small picture."""
    return Image(data=b"1234")


@server.tool
async def fail() -> str:
    """Never works."""
    raise ToolError("out of paper")


@server.tool
async def crash() -> str:
    """Has a fault."""
    print("a note of the tool", file=sys.stderr)
    return {}["colour"]  # the fault


@server.tool
async def work(context: Context) -> str:
    """Takes its time."""
    await context.progress(1, 2, "half")
    await context.log("info", "on it")
    return "worked"


@server.tool
async def ask(context: Context) -> str:
    """Asks back."""
    answer = await context.elicit("Sure?", {"type": "object", "properties": {}})
    return answer.action
'''


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("demo") / "server.py"
    path.write_text(SERVER)
    return str(path)


class Said:
    """What a call printed, and how it ended."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err


@pytest.fixture
def call(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))

    def run(*argv: str) -> Said:
        code = main(["call", *argv])
        said = capfd.readouterr()
        return Said(code, said.out, said.err)

    return run


@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_text_is_printed_as_text(call: Any, demo: str, era: str) -> None:
    said = call(demo, "shout", '{"text": "hi"}', "--era", era)
    assert (said.code, said.out, said.err) == (0, "HI\n", "")


def test_json_is_the_raw_result(call: Any, demo: str) -> None:
    said = call(demo, "add", '{"a": 2}', "--json")
    result = msgspec.json.decode(said.out)
    assert result["structuredContent"] == {"result": 3}
    assert result["content"] == [{"type": "text", "text": "3"}]


def test_arguments_may_come_from_stdin(
    call: Any, demo: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO('{"a": 4}'))
    assert call(demo, "add", "-").out == "5\n"


def test_single_arguments_are_of_the_type_the_schema_says(call: Any, demo: str) -> None:
    assert call(demo, "add", "--arg", "a=2", "--arg", "b=3").out == "5\n"
    assert call(demo, "shout", "--arg", "text=12").out == "12\n"
    assert call(demo, "add", '{"a": 1}', "--arg", "b=9").out == "10\n"
    said = call(demo, "add", "--arg", "a=two")
    assert (said.code, said.out) == (1, "")
    assert said.err == "portico: --arg a must be JSON of type integer, not 'two'\n"


@pytest.mark.parametrize(
    ("given", "filed"),
    [
        ("code=12", "'12' 0"),
        ("code=true", "'true' 0"),
        ("code=null", "None 0"),
        ("size=3", "None 3.0"),
        ("size=large", "None 'large'"),
    ],
)
def test_what_may_be_text_is_text_unless_it_is_of_another_type_that_it_may_be(
    call: Any, demo: str, given: str, filed: str
) -> None:
    assert call(demo, "file", "--arg", given).out == f"{filed}\n"


def test_a_picture_is_a_line_and_a_file(call: Any, demo: str, tmp_path: Path) -> None:
    assert call(demo, "picture").out == "[image image/png, 4 bytes]\n"
    call(demo, "picture", "--save", str(tmp_path))
    assert (tmp_path / "result-1.png").read_bytes() == b"1234"


def test_a_tool_that_fails_is_one_and_says_so_on_stderr(call: Any, demo: str) -> None:
    said = call(demo, "fail")
    assert (said.code, said.out, said.err) == (1, "", "out of paper\n")
    said = call(demo, "fail", "--json")
    assert said.code == 1
    assert msgspec.json.decode(said.out)["isError"] is True


def test_a_tool_of_a_file_that_crashes_shows_its_own_line(call: Any, demo: str) -> None:
    said = call(demo, "crash")
    line = SERVER.split("\n").index('    return {}["colour"]  # the fault') + 1
    assert said.code == 1
    first, second, *rest = said.err.splitlines()
    assert first == "crash failed: KeyError: 'colour'"
    assert second.startswith("tools/call crash failed at ")
    assert second.endswith(f"server.py:{line}")
    assert '    return {}["colour"]  # the fault' in rest
    assert not [one for one in said.err.splitlines() if "portico/" in one or "a note" in one]


def test_a_syntax_error_shows_the_users_frames_only(call: Any, tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text("import helper\n")
    (tmp_path / "helper.py").write_text("x = 1\ndef f(:\n")
    for file, frames in ((path, 2), (tmp_path / "helper.py", 1)):
        said = call(str(file), "anything")
        assert said.code == 1
        assert "SyntaxError: invalid syntax" in said.err
        assert f'File "{tmp_path}/helper.py", line 2\n' in said.err
        assert said.err.count('File "') == frames
        assert "importlib" not in said.err


def test_progress_and_log_go_to_stderr(call: Any, demo: str) -> None:
    said = call(demo, "work")
    assert said.out == "worked\n"
    assert said.err == "progress 1/2 half\ninfo: on it\n"
    assert "on it" not in call(demo, "work", "--log-level", "error").err


@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_without_a_terminal_a_question_is_shown_and_declined(
    call: Any, demo: str, era: str
) -> None:
    said = call(demo, "ask", "--era", era)
    assert said.out == "decline\n"
    assert f"{demo} requests input: Sure?" in said.err
    assert "declined: there is no terminal" in said.err


def test_an_unknown_tool_names_near_ones(call: Any, demo: str) -> None:
    said = call(demo, "shuot")
    assert said.code == 1
    assert said.err == f"portico: {demo} has no tool 'shuot'; did you mean shout?\n"
    assert "it has add, shout, file, picture" in call(demo, "qqqqq").err


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        ('{"a": 1', "line 1, column 8"),
        ('{"a": \n  oops}', "line 2, column 3\n    oops}\n    ^"),
        ("", "line 1, column 1"),
        ('{"a":\n', "line 2, column 1"),
        ('{"a":\r\n oops}', "line 2, column 2\n   oops}\n   ^"),
        ("[1]", "must be a JSON object"),
        ('{"a": NaN}', "JSON"),
    ],
)
def test_bad_json_is_wrong_usage_and_says_where(
    call: Any, demo: str, arguments: str, place: str
) -> None:
    said = call(demo, "add", arguments)
    assert said.code == 2
    assert said.err.startswith("portico: the arguments ")
    assert place in said.err


def test_wrong_arguments_are_the_servers_to_refuse(call: Any, demo: str) -> None:
    said = call(demo, "add", "{}")
    assert said.code == 1
    assert "a" in said.err


def quoted(mode: str) -> str:
    return shlex.join(bad_server(mode).argv)


def test_a_server_that_dies_is_quoted(call: Any) -> None:
    said = call(quoted("dies"), "act")
    assert said.code == 1
    assert said.err.startswith("portico: python")
    assert "exited with code 3; last output:\n  loading the model\n" in said.err


def test_a_server_that_does_not_answer_runs_out(call: Any) -> None:
    said = call(quoted("silent"), "act", "--timeout", "0.5", "--era", "legacy")
    assert said.code == 1
    assert "did not answer tools/call within 0.5 s" in said.err


def test_a_command_that_is_not_there_is_named(call: Any) -> None:
    said = call("no-such-command --flag", "act")
    assert said.code == 1
    assert said.err.endswith(
        "portico: there is no command 'no-such-command'; check its name and your PATH\n"
    )


def test_a_url_where_nobody_is_is_named(call: Any) -> None:
    said = call("http://127.0.0.1:1/mcp", "act")
    assert said.code == 1
    assert said.err.startswith("portico: http://127.0.0.1:1/mcp cannot be reached")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["shout", '{"text": "\udcff"}'], "not UTF-8"),
        (["shout", "--arg", "text=\udcff"], "udcff' is not UTF-8"),
        (["sh\udcff"], "is not UTF-8"),
    ],
)
def test_words_of_the_shell_that_are_no_text_are_wrong_usage(
    call: Any, demo: str, arguments: list[str], words: str
) -> None:
    said = call(demo, *arguments)
    assert said.code == 2
    assert words in said.err


def test_an_encoding_that_lacks_a_letter_is_no_failure(demo: str) -> None:
    command = [sys.executable, "-m", "portico", "call", demo, "shout", '{"text": "sn\u2603w"}']
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    ran = subprocess.run(command, env=environment, capture_output=True, timeout=60, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"SN\\u2603W\n", b"")
