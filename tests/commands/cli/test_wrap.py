"""`portico wrap` on the command line: what it takes, what it refuses, and how it says so."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from portico.commands.cli import wrap
from portico.gateway.app import AppFactory, wrap_app
from portico.gateway.wrap_app import WrapOptions
from portico.upstream.wires.child_wire import Command
from portico.upstream.wires.streamable_http import Url
from tests.rigs.badmodes import SECRET
from tests.rigs.running import bad, listening
from tests.support.messages import initialize

COMMAND = ("--", "server", "--flag")
URL = "http://127.0.0.1:1/mcp"


class Asked:
    """What `main` hands to the composition root instead of serving."""

    wrapping: WrapOptions
    http: str | None
    more: dict[str, Any]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Asked:
    found = Asked()

    def over_http(make: AppFactory, address: str, **more: Any) -> int:
        found.http, found.more = address, more
        return 0

    def over_stdio(make: AppFactory, **more: Any) -> int:
        found.http, found.more = None, more
        return 0

    def wrapped(options: WrapOptions) -> AppFactory:
        found.wrapping = options
        return wrap_app(options)

    monkeypatch.setenv("PORTICO_HOME", str(tmp_path))
    monkeypatch.setattr("portico.edge.transport.stdio.take_stdout", lambda: 1)
    monkeypatch.setattr("portico.gateway.app.wrap_app", wrapped)
    monkeypatch.setattr("portico.gateway.app.app_http", over_http)
    monkeypatch.setattr("portico.gateway.app.app_stdio", over_stdio)
    return found


def run(
    home: Path, *words: str, send: tuple[Any, ...] = (), **env: str
) -> subprocess.CompletedProcess[str]:
    """Run the command to its end with these messages as its input."""
    return subprocess.run(
        [sys.executable, "-m", "portico", "wrap", *words],
        input="".join(json.dumps(message) + "\n" for message in send),
        env={**os.environ, **env, "PORTICO_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def command(asked: Asked) -> Command:
    assert isinstance(asked.wrapping.address, Command)
    return asked.wrapping.address


# What it takes.


def test_a_command_is_served_over_stdio_with_patience_enough(asked: Asked) -> None:
    assert wrap.main(list(COMMAND)) == 0
    plan, limits = asked.wrapping.policy, asked.wrapping.policy.limits
    assert asked.http is None
    assert asked.more["drain_s"] == 30
    assert command(asked).argv == ("server", "--flag")
    assert (limits.init_s, limits.list_s, limits.call_s, plan.idle_s) == (30, 30, 120, None)
    assert (plan.instances, plan.max_in_flight, plan.max_queue) == (1, 256, 1024)
    assert (plan.sharing, plan.era) == ("auto", "auto")
    found = asked.wrapping
    assert (found.cache, found.warm, found.refresh, found.log) == (True, False, False, None)


def test_over_http_an_idle_server_is_stopped_after_a_while(asked: Asked) -> None:
    wrap.main(["--http", "8000", *COMMAND])
    assert (asked.http, asked.more["auth"], asked.more["hosts"]) == ("8000", "token", [])
    assert asked.wrapping.policy.idle_s == 300


@pytest.mark.parametrize("first", [True, False])
def test_a_url_may_stand_anywhere_among_the_options(asked: Asked, first: bool) -> None:
    options = ["--name", "files", "--header", "X-Key: a b", "--max-connections", "7"]
    wrap.main([URL, *options] if first else [*options, URL])
    address = asked.wrapping.address
    assert isinstance(address, Url)
    assert (address.url, address.name) == (URL, "files")
    assert dict(address.headers) == {"X-Key": "a b"}
    assert address.max_connections == 7


def test_every_option_reaches_what_it_is_for(asked: Asked) -> None:
    words = """--http [::1]:9 --auth none --allow-host a.test --allow-host b.test:1 --name files
        --init-timeout 1 --list-timeout 2 --call-timeout 3.5 --idle-timeout 4 --instances 5
        --max-in-flight 6 --queue 0 --sharing per-client --era legacy --warm --no-cache --refresh
        --env A=b=c --env D= --log calls.jsonl --drain 0 --drain-notice 3"""
    wrap.main([*words.split(), *COMMAND])
    plan, limits, found = asked.wrapping.policy, asked.wrapping.policy.limits, asked.wrapping
    assert asked.http == "[::1]:9"
    assert asked.more == {
        "auth": "none",
        "hosts": ["a.test", "b.test:1"],
        "token_file": None,
        "drain_s": 0,
        "drain_notice_s": 3,
    }
    assert command(asked).name == "files"
    assert (limits.init_s, limits.list_s, limits.call_s, plan.idle_s) == (1, 2, 3.5, 4)
    assert (plan.instances, plan.max_in_flight, plan.max_queue) == (5, 6, 0)
    assert (plan.sharing, plan.era) == ("per-client", "legacy")
    assert (found.warm, found.cache, found.refresh, found.log) == (True, False, True, "calls.jsonl")
    assert command(asked).env == {"A": "b=c", "D": ""}


def test_the_words_behind_the_dashes_are_the_commands_own(asked: Asked) -> None:
    wrap.main(["--warm", "--", "server", "--http", "1", "--", "--warm", "--help"])
    assert command(asked).argv == ("server", "--http", "1", "--", "--warm", "--help")
    assert asked.http is None


@pytest.mark.parametrize("more", [(), ("--warm",), ("--log", "f"), ("--warm", "--name", "x")])
@pytest.mark.parametrize("program", ["npx", "./server", "../x/server.sh", "/bin/x", "a/b"])
def test_a_command_needs_no_dashes_before_it_and_its_options_are_its_own(
    asked: Asked, more: tuple[str, ...], program: str
) -> None:
    typed = [program, "-y", "server", "--http", "3", "--", "--warm", "--help", "https://x/mcp"]
    assert wrap.main([*more, *typed]) == 0
    assert command(asked).argv == tuple(typed)
    assert asked.http is None
    assert asked.wrapping.warm == ("--warm" in more)


def test_the_value_of_an_option_is_not_the_command(asked: Asked) -> None:
    words = ["--http", "8000", "--env", "A=b", "--auth=none", "--instances", "2", "server", "--x"]
    assert wrap.main(words) == 0
    assert (command(asked).argv, asked.http) == (("server", "--x"), "8000")


def test_a_file_with_an_odd_name_is_a_command(asked: Asked, tmp_path: Path) -> None:
    odd = tmp_path / "my server:1"
    odd.touch()
    assert wrap.main([str(odd), "-v"]) == 0
    assert command(asked).argv == (str(odd), "-v")


@pytest.mark.parametrize("more", [(), ("--name", "files")])
def test_flags_mean_the_same_with_and_without_other_options(
    asked: Asked, more: tuple[str, ...]
) -> None:
    wrap.main(["--warm", "--no-cache", "--refresh", *more, *COMMAND])
    found = asked.wrapping
    assert (found.warm, found.cache, found.refresh) == (True, False, True)


def test_a_clean_environment_holds_little_and_what_was_added(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_TOKEN", "mine")
    wrap.main(["--clean-env", "--env", "A=b", *COMMAND])
    assert "SOME_TOKEN" not in command(asked).variables
    assert command(asked).variables["A"] == "b"
    wrap.main(list(COMMAND))
    assert command(asked).variables["SOME_TOKEN"] == "mine"


@pytest.mark.parametrize(
    ("argv", "name"),
    [
        (["/usr/bin/python3", "/home/me/server.py"], "python3 server.py"),
        (["npx", "-y", "@scope/server"], "npx server"),
        (["server", "--token", SECRET, "--port", "1"], "server"),
        (["server", "--api-key=ab/cd"], "server"),
        (["npx", "remote", "--header", "Authorization: Bearer abcdefgh"], "npx remote"),
        (["server", SECRET], "server"),
        (["x" * 100], "x" * 57 + "..."),
    ],
)
def test_a_command_is_named_without_its_paths_and_secrets(
    asked: Asked, argv: list[str], name: str
) -> None:
    wrap.main(["--", *argv])
    assert command(asked).name == name


# What it refuses.


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "nothing to wrap: give COMMAND ARGS... or a URL"),
        (("--",), "nothing to wrap"),
        (("",), "the command is empty; check that its variables are set"),
        (("--", ""), "the command is empty; check that its variables are set"),
        (("--warm", "--", " ", "--flag"), "the command is empty"),
        (("--warm",), "nothing to wrap"),
        (("--htpp", "8000", "npx", "-y", "server"), "no option --htpp; did you mean --http?"),
        (("--name", "--warm", "npx"), "--name needs NAME"),
        (("--name", "--", "npx"), "--name needs NAME"),
        (("ftp://example.com",), "a URL begins with https:// or http://"),
        (("https:/example.com",), "a URL begins with https:// or http://"),
        (("example.com/mcp", "--warm"), "a URL begins with https:// or http://"),
        (("localhost:8000",), "a URL begins with https:// or http://"),
        (("npx -y server",), "remove the quotes: COMMAND ARGS..."),
        (("A=b", "npx", "server"), "as --env NAME=VALUE, before the command"),
        ((URL, "--", "server"), "give either a URL or a COMMAND, not both"),
        (("--warm", URL, "--", "server"), "give either a URL or a COMMAND, not both"),
        ((URL, "server"), "give one URL"),
        ((URL, URL), "give one URL"),
        ((URL, "--env", "A=b"), "--env and --clean-env are for commands; a URL takes --header"),
        ((URL, "--clean-env"), "--env and --clean-env are for commands"),
        (("--clean-env", URL), "--env and --clean-env are for commands"),
        (("--header", "A: b", *COMMAND), "--header is for URLs; a command takes --env"),
        (("--header", "A", URL), "'NAME: VALUE'"),
        (("--env", "A", *COMMAND), "NAME=VALUE"),
        (("--instances", "0", *COMMAND), "--instances must be at least 1"),
        (("--instances", "two", *COMMAND), "invalid int value: 'two'"),
        (("--max-in-flight", "0", *COMMAND), "--max-in-flight must be at least 1"),
        (("--max-connections", "0", URL), "--max-connections must be at least 1"),
        (("--queue", "-1", *COMMAND), "--queue must be at least 0"),
        (("--drain", "-1", *COMMAND), "'-1' is not a number of seconds"),
        (("--drain", "nan", *COMMAND), "'nan' is not a number of seconds"),
        (("--init-timeout", "0", *COMMAND), "'0' is not a number of seconds"),
        (("--list-timeout", "inf", *COMMAND), "'inf' is not a number of seconds"),
        (("--call-timeout", "soon", *COMMAND), "'soon' is not a number of seconds"),
        (("--idle-timeout", "-3", *COMMAND), "'-3' is not a number of seconds"),
        (("--sharing", "some", *COMMAND), "--sharing cannot be 'some'"),
        (("--era", "golden", *COMMAND), "--era cannot be 'golden'"),
        (("--auth", "maybe", *COMMAND), "--auth cannot be 'maybe'"),
        (("--nonsense", *COMMAND), "--nonsense"),
    ],
)
def test_wrong_usage_is_refused_with_what_would_be_right(
    asked: Asked, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], says: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        wrap.main(list(words))
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert says in said
    assert "portico wrap [options] COMMAND [ARGS...]" in said
    assert not hasattr(asked, "wrapping")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--http", "there", *COMMAND), "'there' is not an address: give PORT, HOST:PORT"),
        (("--http", "0.0.0.0:0", "--auth", "none", *COMMAND), "--auth none is for loopback only"),
        ((), "nothing to wrap"),
    ],
)
def test_wrong_usage_ends_with_code_2(tmp_path: Path, words: tuple[str, ...], says: str) -> None:
    ran = run(tmp_path, *words)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert says in ran.stderr


def test_help_names_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        wrap.main(["--help"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    options = """http auth allow-host name init-timeout list-timeout call-timeout idle-timeout
        instances max-in-flight max-connections queue sharing era warm no-cache refresh clean-env
        env header log drain"""
    assert [name for name in options.split() if f"--{name}" not in said] == []


# What cannot be had.


def test_a_command_that_is_not_there_answers_the_handshake_and_ends_with_1(tmp_path: Path) -> None:
    ran = run(tmp_path, "--", "/no/such/command", send=(initialize(id=7),))
    assert ran.returncode == 1
    answer = json.loads(ran.stdout)
    assert answer["id"] == 7
    said = "command cannot start: there is no command '/no/such/command'; check the path"
    assert answer["error"]["message"] == said
    assert answer["error"]["data"] == {"kind": "start", "server": "command"}
    assert ran.stderr == f"portico: {said}\n"


def test_a_command_that_ends_at_once_is_quoted(tmp_path: Path) -> None:
    ran = run(tmp_path, "--name", "files", "--", *bad("stdio", "exits", "3"), send=(initialize(),))
    assert ran.returncode == 1
    error = json.loads(ran.stdout)["error"]
    assert error["data"] == {
        "kind": "exited",
        "server": "files",
        "exit_code": 3,
        "stderr": "no API key",
    }
    assert "files exited with code 3" in error["message"]
    assert "no API key" in error["message"]
    assert f"portico: {error['message']}\n" in ran.stderr


def test_a_url_where_nobody_listens_ends_with_1(tmp_path: Path) -> None:
    ran = run(tmp_path, URL, send=(initialize(),))
    assert ran.returncode == 1
    assert f"{URL} cannot be reached" in json.loads(ran.stdout)["error"]["message"]
    assert ran.stderr.startswith(f"portico: {URL} cannot be reached")


def test_a_client_that_leaves_before_it_says_a_word_starts_nothing(tmp_path: Path) -> None:
    ran = run(tmp_path / "home", "--", "sh", "-c", f"touch {tmp_path}/started")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
    assert not (tmp_path / "started").exists()


def test_every_form_serves(tmp_path: Path) -> None:
    with listening(bad("http", "plain")) as url:
        for words in ((url,), ("--", *bad("stdio", "plain")), bad("stdio", "plain")):
            ran = run(tmp_path, *words, send=(initialize(),))
            assert ran.returncode == 0, ran.stderr
            assert json.loads(ran.stdout)["result"]["serverInfo"]["name"] == "bad-plain"


def test_secrets_in_the_environment_stay_out_of_its_words(tmp_path: Path) -> None:
    script = 'echo "using $SOME_TOKEN" >&2; exit 1'
    words = ("--name", "files", "--", "sh", "-c", script)
    ran = run(tmp_path, *words, send=(initialize(),), SOME_TOKEN="plain-looking-value")
    assert "using ***" in ran.stderr
    assert "plain-looking" not in ran.stderr + ran.stdout
