"""Which kind of component an argument is, by its content, and the errors for everything else."""

import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from portico.core.config.schema import ServerEntry
from portico.library.components.classify import (
    Component,
    ComponentError,
    InvalidArgument,
    UnknownComponent,
    classify,
)
from tests.support.unprivileged import NOBODY

SERVER = "from portico import Server\nserver = Server('x')\n"
FASTMCP = "from mcp.server.fastmcp import FastMCP\nmcp = FastMCP('x')\nmcp.run()\n"
LINK = "def link(next):\n    return next\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def put(name: str, content: str | bytes = SERVER, mode: int = 0o644) -> str:
    path = Path(name)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    path.chmod(mode)
    return name


def why_not(argument: str, aliases: Mapping[str, ServerEntry] | None = None) -> str:
    with pytest.raises(ComponentError) as raised:
        classify(argument, aliases)
    return str(raised.value)


# By content


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("server.py", SERVER, "python"),
        ("empty.py", "", "python"),
        ("only_link.py", LINK, "python"),
        ("tool", f"#!/usr/bin/env python3\n{SERVER}", "python"),
        ("tools.json", "[]", "definitions"),
        ("tools", '\n  {"tools": []}', "definitions"),
        ("bom.txt", b'\xef\xbb\xbf[{"name": "x"}]', "definitions"),
        ("json.py", '{"tools": []}', "definitions"),
        ("mentions.py", f"# like mcp, but better\n{SERVER}", "python"),
        ("both.py", f"import mcp.types\n{SERVER}", "python"),
        ("plain_import.py", "import mcp, portico\n", "python"),
        ("typed_link.py", f"from mcp import types\n{LINK}", "python"),
        ("links.py", "import fastmcp\nlinks = []\n", "python"),
        ("fast.py", FASTMCP, "command"),
        ("fast2.py", "import fastmcp\n", "command"),
        ("comment.py", f"# not portico\n{FASTMCP}", "command"),
    ],
)
def test_the_content_of_a_file_decides(name: str, content: str | bytes, kind: str) -> None:
    assert classify(put(name, content)).kind == kind


def test_a_server_of_another_library_is_a_program_of_our_python(folder: Path) -> None:
    assert classify(put("fast.py", FASTMCP)).argv == (sys.executable, "./fast.py")
    # Without a shebang the system cannot execute it, whatever its mode.
    assert classify(put("fast.py", FASTMCP, 0o755)).argv == (sys.executable, "./fast.py")
    script = put("script", f"#!{sys.executable}\n{FASTMCP}", 0o755)
    assert classify(script).argv == ("./script",)
    assert classify(str(folder / "script")).argv == (str(folder / "script"),)


def test_a_script_or_program_that_can_be_executed_is_a_command() -> None:
    found = classify(put("start", "#!/bin/sh\nexec true\n", 0o755))
    assert (found.kind, found.name, found.argv) == ("command", "start", ("./start",))
    binary = shutil.which("true")
    assert binary is not None
    assert classify(binary).argv == (binary,)


def test_a_script_that_may_not_be_executed_names_the_remedy() -> None:
    said = why_not(put("start.sh", "#!/bin/sh\nexec true\n"))
    assert said.endswith("the program may not be executed; run `chmod +x start.sh`")


def test_only_the_head_of_a_huge_file_is_read() -> None:
    put("huge.py", SERVER)
    os.truncate("huge.py", 1 << 40)  # sparse: to read it all would take hours
    assert classify("huge.py").kind == "python"


# Names and variables


@pytest.mark.parametrize(
    "name",
    ["my server.py", "a:b.py", "a=b.py", "größe.py", "new\nline.py", "-x.py", "'quoted.py", "c:d"],
)
def test_a_file_is_found_under_any_name(name: str) -> None:
    found = classify(put(name, f"#!/usr/bin/python\n{SERVER}"))
    assert (found.kind, found.path, found.variable) == ("python", name, "")
    found = classify(f"{name}:app")
    assert (found.path, found.variable) == (name, "app")
    found = classify(f"calc={name}:app")
    assert (found.name, found.path, found.variable) == ("calc", name, "app")


def test_a_component_gets_a_name_of_its_own() -> None:
    put("server.py")
    assert classify("server.py").name == "server"
    assert classify("calc=server.py").name == "calc"
    assert classify("web=https://example.test/mcp?a=b").url == "https://example.test/mcp?a=b"
    assert classify("run=python -m this").argv == ("python", "-m", "this")


def test_a_name_that_tools_cannot_have_is_refused_without_the_rest() -> None:
    said = why_not("a__b=python server.py --token hunter2")
    assert said == "'a__b' is not a valid name of a component; write a_b=COMPONENT"


def test_a_variable_before_a_command_is_not_a_name() -> None:
    said = why_not("API_KEY=hunter2 python -m server")
    assert said.startswith("API_KEY=... is a variable, not a component; set API_KEY")
    assert "hunter2" not in said


def test_only_python_has_variables() -> None:
    assert "only a Python file" in why_not(f"{put('tools.json', '[]')}:app")
    assert "only a Python file" in why_not(f"{put('fast.py', FASTMCP)}:mcp")
    put("timed.py", "import mcp\n\ndef timed(next):\n    return next\n")
    assert classify("timed.py:timed").kind == "python"


# Aliases


class _Unread(dict[str, ServerEntry]):
    """Aliases that must not be looked at."""

    def __contains__(self, name: object) -> bool:
        raise AssertionError("the aliases were read")

    def __len__(self) -> int:
        raise AssertionError("the aliases were read")


def test_aliases_are_not_read_for_files_urls_and_commands() -> None:
    put("server.py")
    unread = _Unread()
    arguments = "server.py", "calc=server.py", "server.py:app", "https://x.test/mcp", "python -m x"
    assert [classify(one, unread).kind for one in arguments] == [
        "python",
        "python",
        "python",
        "url",
        "command",
    ]


def test_an_alias_has_its_entry() -> None:
    entry = ServerEntry(name="python", command="npx", args=("server",), env={"A": "b"})
    found = classify("python", {"python": entry})  # also a program: the alias comes first
    assert (found.kind, found.name, found.argv) == ("command", "python", ("npx", "server"))
    assert found.entry is entry
    web = ServerEntry(name="web", url="https://example.test/mcp")
    assert classify("mine=web", {"web": web}).url == "https://example.test/mcp"
    assert classify("mine=web", {"web": web}).name == "mine"


def test_a_file_comes_before_an_alias_and_an_alias_before_a_folder() -> None:
    entry = ServerEntry(name="calc", command="true")
    put("calc", f"#!/usr/bin/python\n{SERVER}")
    assert classify("calc", {"calc": entry}).kind == "python"
    Path("calc").unlink()
    Path("calc").mkdir()
    assert classify("calc", {"calc": entry}).entry is entry
    assert "a folder" in why_not("calc")


def test_a_folder_does_not_hide_a_program() -> None:
    Path("python").mkdir()
    assert classify("python").argv == ("python",)
    assert "a folder" in why_not("./python")


def test_a_project_comes_before_a_program_and_after_an_alias() -> None:
    entry = ServerEntry(name="python", command="true")
    Path("python").mkdir()
    put("python/component.toml", 'component = "app.py"\n')
    put("python/app.py", SERVER)
    assert classify("python").path == "python/app.py"
    assert classify("python", {"python": entry}).entry is entry


def test_a_misspelt_alias_is_suggested() -> None:
    entry = ServerEntry(name="github", command="true")
    said = why_not("githib", {"github": entry})
    assert said == "'githib' is neither a file, an alias nor a command; did you mean github?"


# Bad input


def test_a_word_that_is_nothing() -> None:
    with pytest.raises(UnknownComponent) as raised:
        classify("no-such-thing-here")
    assert str(raised.value) == (
        "'no-such-thing-here' is neither a file, an alias nor a command; "
        "give server.py, tools.json, a URL or a quoted command"
    )
    assert why_not("localhost:8000/mcp").endswith("; a URL begins with https:// or http://")
    assert len(why_not("x" * 100_000)) < 300
    assert "\n" not in why_not("no-such\nthing")


def test_a_file_that_is_not_there_names_a_similar_one() -> None:
    put("server.py")
    put("my server.py")
    assert why_not("sever.py") == "sever.py: no such file; did you mean server.py?"
    assert why_not("sever.py:app") == "sever.py: no such file; did you mean server.py?"
    assert why_not("my sever.py").endswith("; did you mean 'my server.py'?")
    assert why_not("./nothing") == "./nothing: no such file"


NO_KIND = "neither Python, JSON, WebAssembly nor a program; give the command that runs it"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "not a component: the file is empty"),
        (" \n\n", "not a component: the file is empty"),
        (bytes(range(255, 0, -1)), NO_KIND),
        (b"\0asm\1\0\0\0", "a core module, not a component"),
        ("[servers.github]\ncommand = 'npx'\n", "a config, not a component; serve it with"),
        ("[[agents]]\nid = 'x'\n", "a config, not a component; serve it with"),
        ("hello: yaml\n", NO_KIND),
        ("(component)", NO_KIND),  # the text of a component: it has to be compiled
    ],
)
def test_a_file_of_another_kind_is_explained(content: str | bytes, why: str) -> None:
    said = why_not(put("thing", content, 0o755))
    assert said.startswith("thing: ")
    assert why in said


def test_a_folder_is_refused() -> None:
    Path("some.folder").mkdir()
    assert why_not("some.folder") == "some.folder: a folder, not a file; give a file in it"
    assert "a folder" in why_not("some.folder/")
    assert "a folder" in why_not("named=some.folder")


def test_a_pipe_a_socket_and_a_device_are_refused_at_once(folder: Path) -> None:
    os.mkfifo("pipe.py")
    assert "not a regular file" in why_not("pipe.py")
    assert "not a regular file" in why_not("/dev/null")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket.py")
        assert "cannot be read" in why_not("socket.py")


@contextmanager
def _as_nobody() -> Iterator[None]:
    """Lose the right of root to read everything."""
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)


def test_a_file_that_cannot_be_read_is_named() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        file, inner = folder / "secret.py", folder / "closed" / "server.py"
        inner.parent.mkdir()
        for path in (file, inner):
            path.write_text(SERVER)
        file.chmod(0)
        inner.parent.chmod(0)
        try:
            with _as_nobody():
                said = [why_not(str(path)) for path in (file, inner)]
        finally:
            inner.parent.chmod(0o755)
    what = "cannot be read: Permission denied; check the permissions of the file and its folder"
    assert said == [f"{path}: {what}" for path in (file, inner)]


@pytest.mark.parametrize("argument", ["", "  ", "\n", "unfinished 'quote", "http://[", "a='b c"])
def test_an_argument_that_names_nothing_is_wrong_usage(argument: str) -> None:
    with pytest.raises(InvalidArgument):
        classify(argument)


@pytest.mark.parametrize(
    "argument",
    [
        "no-such-program --token hunter2",
        "x=no-such-program --token hunter2",
        "no-such-program 'hunter2",
        "python --token 'hunter2",
        "TOKEN=hunter2 no-such-program",
        "TOKEN=hunter2 python x",
        "http://user:hunter2@[",
        "bad__name=python hunter2",
    ],
)
def test_no_message_repeats_the_arguments_of_a_command(argument: str) -> None:
    assert "hunter2" not in why_not(argument)


def test_the_name_of_a_url_has_no_secret() -> None:
    assert classify("https://user:hunter2@example.test/hunter2?key=hunter2").name == "example-test"


@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text() | st.from_regex(r"\A[a-zA-Z_]{1,4}[=:/. '\"~]{1,3}.{0,5}\Z"))
@example("\0")
@example("python \0")
@example("a=\0 b")
@example("\ud800")
@example("x" * 5000)
@example("http://")
@example("http://]:99999")
@example("python -c 'a\nb'")
def test_any_text_is_a_component_or_an_error(argument: str) -> None:
    found: Component | ComponentError
    try:
        found = classify(argument)
    except ComponentError as error:
        found = error
    if isinstance(found, ComponentError):
        assert str(found)
        assert "\n" not in str(found)
    else:
        assert found.name
        assert (found.path != "") + (found.argv != ()) + (found.url != "") == 1
