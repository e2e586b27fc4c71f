"""`portico servers`: the config changed, listed and tried from the command line."""

import json
import os
import socket
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from portico.commands.cli.main import main
from portico.core.config.read import read
from tests.rigs.running import bad, shelf
from tests.support.running import Piped
from tests.wrap.standing import Standing, servers, until


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The default config of a home that is the test's own; not there yet."""
    monkeypatch.setenv("PORTICO_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "config" / "portico.toml"


@pytest.fixture
def words(tmp_path: Path) -> Path:
    file = tmp_path / "tools"
    file.write_text("lists announce one")
    return file


def test_a_command_is_added_with_all_that_was_said(
    config: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "s3cret")
    monkeypatch.chdir(tmp_path)
    options = ["--env", "GITHUB_TOKEN=s3cret", "--env", "B=2", "--cwd", "work", "--tag", "code"]
    assert main(["servers", "add", "github", *options, "--", "npx", "-y", "x", "--", "--env"]) == 0
    assert capsys.readouterr().out == f"added github to {config}\n"
    assert config.read_text() == (
        '[servers.github]\ncommand = "npx"\nargs = ["-y", "x", "--", "--env"]\n'
        'env = { GITHUB_TOKEN = "${GITHUB_TOKEN}", B = "2" }\n'
        f'cwd = "{tmp_path}/work"\ntags = ["code"]\n'
    )
    assert read(config).servers["github"].env == {"GITHUB_TOKEN": "s3cret", "B": "2"}


@pytest.mark.parametrize("file", ["portico.toml", "mcp.json"])
def test_a_plain_variable_is_written_and_a_secret_only_referred_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    config = tmp_path / file
    monkeypatch.setenv("LEVEL", "debug")
    monkeypatch.setenv("DB_PASSWORD", "s3cret")
    given = [
        "LEVEL=debug",
        "MAX_TOKENS=9",
        "EMPTY_TOKEN=",
        "API_TOKEN=s3cret",
        "DB_PASSWORD=s3cret",
    ]
    references = ["A_KEY=${OTHER}", "B_KEY=file:/b", "C_KEY=keyring:c"]
    options = [word for one in (*given, *references) for word in ("--env", one)]
    assert main(["servers", "add", "a", "--config", str(config), *options, "x"]) == 0
    assert "s3cret" not in config.read_text()
    data = (tomllib.loads if file.endswith("toml") else json.loads)(config.read_text())
    assert data["servers" if file.endswith("toml") else "mcpServers"]["a"]["env"] == {
        "LEVEL": "debug",
        "MAX_TOKENS": "9",
        "EMPTY_TOKEN": "",
        "API_TOKEN": "${API_TOKEN}",
        "DB_PASSWORD": "${DB_PASSWORD}",
        **dict(one.split("=", 1) for one in references),
    }
    said = capsys.readouterr()
    assert "s3cret" not in said.out + said.err
    assert said.err.count("looks like a secret") == 2
    assert "the config contains ${API_TOKEN}, not its value" in said.err
    assert "Set API_TOKEN in the environment of the gateway" in said.err
    assert "portico: OTHER is not set in this shell; set it in the environment of the" in said.err
    assert "DB_PASSWORD is set in this shell; set it also for clients" in said.err


def test_a_secret_in_a_header_is_pointed_out(
    config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    add = ["servers", "add", "--header"]
    assert main([*add, "Authorization: Bearer s3cret", "a", "https://x.test/mcp"]) == 0
    said = capsys.readouterr().err
    assert said.startswith("portico: the config now contains the value of Authorization")
    assert "s3cret" not in said
    monkeypatch.setenv("KEY", "s3cret")
    assert main([*add, "Authorization: Bearer ${KEY}", "b", "https://x.test/mcp"]) == 0
    assert main([*add, "X-Team: a", "c", "https://x.test/mcp"]) == 0
    assert capsys.readouterr().err == ""


def test_a_command_needs_no_dashes_before_it_and_its_options_are_its_own(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["servers", "add", "a", "--tag", "t", "npx", "-y", "x", "--env", "--", "-v"]) == 0
    assert main(["servers", "--config", str(config), "add", "--tag", "u", "b", "uvx", "y"]) == 0
    found = read(config).servers
    assert (found["a"].command, found["a"].tags) == ("npx", ("t",))
    assert found["a"].args == ("-y", "x", "--env", "--", "-v")
    assert (found["b"].command, found["b"].args, found["b"].tags) == ("uvx", ("y",), ("u",))


def test_a_file_that_is_here_is_stored_with_its_whole_path_and_a_folder_as_it_is_given(
    config: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    here = str(tmp_path / "weather.py")
    (tmp_path / "weather.py").write_text("")
    (tmp_path / "plain").write_text("")
    add = ["servers", "add"]
    assert main([*add, "a", "./weather.py"]) == 0
    assert main([*add, "b", "--", "portico", "run", "weather.py:app", "nowhere.py", "plain"]) == 0
    assert main([*add, "c", "--cwd", ".", "--", "portico", "run", "weather.py"]) == 0
    assert main([*add, "d", "--", "x", here, "--file=weather.py", "~/weather.py"]) == 0
    assert main([*add, "e", "http://127.0.0.1/mcp"]) == 0
    assert capsys.readouterr().err == ""
    assert main([*add, "f", "--", "npx", "-y", "filesystem", "."]) == 0
    said = capsys.readouterr().err
    assert (
        said == "portico: . is a path in the folder of each window; for this one, give all of it\n"
    )
    stored = {one.name: (one.command, *one.args) for one in read(config).servers.values()}
    assert stored["a"] == (here,)
    assert stored["b"] == ("portico", "run", f"{here}:app", "nowhere.py", "plain")
    assert stored["c"] == ("portico", "run", "weather.py")
    assert stored["d"] == ("x", here, "--file=weather.py", "~/weather.py")
    assert stored["f"] == ("npx", "-y", "filesystem", ".")


def test_a_url_is_added_switched_on_and_removed(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = "https://mcp.linear.app/mcp"
    add = ["servers", "add", "linear", url, "--header", "X-Key: a b", "--disabled", "--json"]
    assert main(add) == 0
    told = {"ok": True, "server": "linear", "config": str(config), "changed": True}
    assert json.loads(capsys.readouterr().out) == told
    linear = read(config).servers["linear"]
    assert (linear.url, linear.headers, linear.enabled) == (url, {"X-Key": "a b"}, False)
    assert [main(["servers", do, "linear"]) for do in ("enable", "enable", "disable")] == [0] * 3
    assert capsys.readouterr().out == (
        "linear is now enabled\nlinear is already enabled\nlinear is now disabled\n"
    )
    assert main(["servers", "remove", "linear"]) == 0
    assert config.read_text() == ""


def test_a_clients_file_is_edited_in_place(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text('{\n  "mcpServers": {} // none\n}\n')
    assert main(["servers", "add", "a", "--config", str(path), "--", "x"]) == 0
    assert main(["servers", "disable", "a", "--config", str(path)]) == 0
    assert path.read_text() == (
        '{\n  "mcpServers": {\n    "a": {\n      "command": "x",\n      "disabled": true\n'
        "    }\n  } // none\n}\n"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "give an action: list, add"),
        (["ad"], "did you mean add?"),
        (["add"], "add needs a NAME"),
        (["add", "a"], "add needs a NAME"),
        (["add", "a", "--"], "add needs a NAME"),
        (["add", "npx", "-y", "x"], "there is no option -y"),
        (["add", "--tagg", "b", "a", "npx"], "there is no option --tagg; did you mean --tag?"),
        (["add", "a", "npx -y x"], "remove the quotes: COMMAND ARGS..."),
        (["list", "a", "b"], "at most one NAME"),
        (["add", "a", "example.com/mcp"], "a URL begins with https://"),
        (["add", "a", "ftp://x"], "a URL begins with https://"),
        (["add", "a", "https://x", "--", "x"], "not both"),
        (["add", "a", "https://x", "https://y"], "one URL"),
        (["add", "a", "https://x", "--env", "A=b"], "a URL takes --header"),
        (["add", "a", "--header", "A: b", "--", "x"], "a command takes --env"),
        (["add", "a", "--env", "A", "--", "x"], "NAME=VALUE"),
        (["remove"], "remove needs the NAME"),
        (["remove", "a", "b"], "at most one NAME"),
        (["list", "--", "x"], "at most one NAME"),
        (["list", "--env", "A=b"], "--env works only with add"),
        (["test", "--timeout", "0"], "not a number of seconds"),
    ],
)
def test_wrong_usage_is_two_and_says_how(
    arguments: list[str], said: str, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["servers", *arguments]) == 2
    assert said in capsys.readouterr().err
    assert not config.exists()


def test_what_cannot_be_done_is_one_and_says_why(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["servers", "remove", "a"]) == 1
    assert "no such file" in capsys.readouterr().err
    assert main(["servers", "add", "a__b", "--", "x"]) == 1
    assert "try a_b" in capsys.readouterr().err
    assert main(["servers", "add", "a", "--", "  "]) == 1
    assert "servers.a.command: is empty" in capsys.readouterr().err
    assert main(["servers", "add", "a", "https://"]) == 1
    assert "servers.a.url: is not an http:// or https:// URL" in capsys.readouterr().err
    assert not config.exists()
    assert main(["servers", "add", "a", "--", "x"]) == 0
    config.write_text(config.read_text() + '[groups.g]\nservers = ["a"]\n')
    assert main(["servers", "remove", "a"]) == 1
    assert "groups.g has a; remove it there first" in capsys.readouterr().err
    config.write_text("[servers.a\n")
    before = config.read_text()
    assert main(["servers", "add", "b", "--", "x"]) == 1
    assert ":1:11: not valid TOML" in capsys.readouterr().err
    assert config.read_text() == before


def test_with_neither_a_config_nor_anything_that_runs_it_says_how_to_begin(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = f"no gateway is running, and there is no config at {config}; create it with `portico "
    for deed in ("list", "refresh"):
        assert main(["servers", deed]) == 1
        assert said in capsys.readouterr().err


def test_names_stand_in_a_column_for_people_only(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config.parent.mkdir(parents=True)
    config.write_text('[servers.a]\ncommand = "x"\n[servers.longer]\ncommand = "y"\n')
    assert main(["servers", "list"]) == 0
    assert capsys.readouterr().out == "a  x  not running\nlonger  y  not running\n"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert main(["servers", "list"]) == 0
    assert capsys.readouterr().out == "a       x  not running\nlonger  y  not running\n"


def test_the_help_has_every_way(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["servers", "--help"]) == 0
    out = capsys.readouterr().out
    for words in ("servers add NAME [options] URL", "  disable  disable a server", "--tag TAG"):
        assert words in out


def test_configured_servers_are_listed_without_their_secrets(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config.parent.mkdir(parents=True)
    config.write_text("""
[servers.github]
command = "/usr/bin/npx"
args = ["-y", "server-github", "--token", "s3cret"]
env = { TOKEN = "${NOWHERE}" }
[servers.zap]
url = "https://user:s3cret@zap.example/api/s3crets3crets3crets3crets3cret/mcp?k=s3cret"
enabled = false
""")
    assert main(["servers", "list"]) == 0
    out = capsys.readouterr().out
    assert out == (
        "github  npx server-github  not running\nzap  https://zap.example/api/…/mcp  disabled\n"
    )
    assert main(["servers", "list", "zap", "--json"]) == 0
    out = capsys.readouterr().out
    (told,) = json.loads(out)
    assert (told["server"], told["enabled"], told["configured"]) == ("zap", False, True)
    assert "s3cret" not in out
    assert main(["servers", "list", "nobody"]) == 1
    assert "no server 'nobody'" in capsys.readouterr().err


def test_an_empty_config_lists_nothing_and_a_broken_one_is_explained(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config.parent.mkdir(parents=True)
    config.write_text("")
    assert main(["servers", "list"]) == 0
    assert capsys.readouterr().out == (
        f"no server is configured in {config}, and none is running; "
        "add one with `portico servers add NAME COMMAND`\n"
    )
    assert main(["status"]) == 0
    assert "  no servers; add one with `portico servers add" in capsys.readouterr().out
    assert main(["servers", "refresh"]) == 0
    assert (
        capsys.readouterr().err == f"portico: {config}: no server is enabled; nothing to refresh\n"
    )
    config.write_text("[servers.a]\ncomand = 1\n")
    assert main(["servers", "list"]) == 1
    assert capsys.readouterr().err == (
        f"portico: {config}:2: servers.a.comand: unknown key; did you mean command?\n"
    )


def test_what_runs_is_listed_after_what_is_configured(config: Path, words: Path) -> None:
    assert main(["servers", "add", "a", "--", "x"]) == 0
    home = config.parents[1]
    with Standing(home, "--name", "shelf", "--", *shelf(words)) as wrap:
        wrap.initialize()
        wrap.tools()
        wrap.reachable()
        shown = servers(home, "list")
        assert shown.stdout == (
            f"a  x  not running\nshelf  pid {wrap.process.pid}  idle  3 tools\n"
        )
        config.write_text("broken")
        shown = servers(home, "list")
        assert shown.returncode == 1
        assert shown.stdout.startswith("shelf  pid ")


@contextmanager
def gateway(folder: Path, answers: dict[str, Any]) -> Iterator[list[dict[str, Any]]]:
    """A process that answers on a control socket as a gateway does, and what it was asked."""
    folder.mkdir(parents=True)
    asked: list[dict[str, Any]] = []
    here = os.getcwd()
    os.chdir(folder)  # a socket's address is short
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("77.sock")
        os.chdir(here)
        listener.listen()

        def serve() -> None:
            while True:
                try:
                    talk, _ = listener.accept()
                except OSError:
                    return
                with talk, talk.makefile("rwb") as file:
                    asked.append(json.loads(file.readline()))
                    file.write(json.dumps(answers[asked[-1]["do"]]).encode() + b"\n")

        thread = threading.Thread(target=serve)
        thread.start()
        yield asked
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_the_state_of_each_server_of_a_gateway_is_shown_and_one_is_refreshed(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("good", "bad", "late"):
        assert main(["servers", "add", name, "--", name]) == 0
    capsys.readouterr()
    status = {
        "ok": True,
        "pid": 77,
        "config": str(config),
        "servers": [
            {"server": "good", "state": "connected", "tools": 12},
            {"server": "bad", "state": "failed", "tools": 0, "error": "no API key"},
            {"server": "other", "state": "idle", "lists": {"tools": 1, "prompts": 2}},
        ],
    }
    folder = config.parents[1] / "state" / "control"
    with gateway(folder, {"status": status, "refresh": status}) as asked:
        assert main(["servers", "list"]) == 0
        assert capsys.readouterr().out == (
            "good  good  pid 77  connected  12 tools\n"
            "bad  bad  pid 77  failed  0 tools  no API key\n"
            "late  late  not running\n"
            "other  pid 77  idle  1 tool, 2 prompts\n"
        )
        assert main(["servers", "refresh", "good"]) == 0
        assert asked[-1] == {"do": "refresh", "server": "good"}
        assert capsys.readouterr().out == "good  pid 77  connected  12 tools\n"
        assert main(["servers", "refresh", "good", "--config", str(config)]) == 0
        assert capsys.readouterr().out == "good  pid 77  connected  12 tools\n"
        asked.clear()
        assert main(["servers", "refresh"]) == 1
        assert asked == [{"do": "status"}, {"do": "refresh"}]
        said = capsys.readouterr()
        assert said.out.count("\n") == 2
        assert said.err == "portico: bad: no API key\n"


def test_a_gateway_that_runs_tells_of_its_servers(config: Path, words: Path) -> None:
    assert main(["servers", "add", "shelf", "--", *shelf(words)]) == 0
    assert main(["servers", "add", "off", "--disabled", "--", "x"]) == 0
    home = config.parents[1]
    serve = ["env", f"PORTICO_HOME={home}", sys.executable, "-m", "portico", "serve", "--alone"]
    with Piped(serve) as running:
        running.initialize()
        control = home / "state" / "control" / f"{running.process.pid}.sock"
        until(control.exists, "it has no control socket")
        until(lambda: "3 tools" in servers(home, "list").stdout, "it knows no tools")
        words.write_text("lists two")
        done = servers(home, "refresh", "shelf")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith(f"shelf  pid {running.process.pid}  ")
        shown = servers(home, "list").stdout.splitlines()
        assert "2 tools" in shown[0]
        assert shown[1] == "off  x  disabled"


def portico(config: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "portico", "servers", *arguments],
        env={**os.environ, "PORTICO_HOME": str(config.parents[1])},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_servers_are_started_for_real_and_said_to_be_what_they_are(
    config: Path, words: Path
) -> None:
    assert main(["servers", "add", "shelf", "--env", "ACCOUNT=me", "--", *shelf(words)]) == 0
    assert main(["servers", "add", "broken", "--disabled", "--", *bad("stdio", "exits")]) == 0
    assert main(["servers", "add", "unset", "--disabled", "--env", "K=${NOWHERE}", "--", "x"]) == 0
    fine = portico(config, "test")
    assert (fine.returncode, fine.stderr) == (0, "")
    assert fine.stdout.startswith(
        "shelf  shelf 1  2025-11-25 (legacy) over stdio  4 tools, 0 resources, 0 prompts  "
    )
    for name in ("broken", "unset"):
        assert main(["servers", "enable", name]) == 0
    some = portico(config, "test", "--json")
    assert some.returncode == 1
    by_name = {told["server"]: told for told in json.loads(some.stdout)}
    assert by_name["shelf"]["tools"] == 4
    assert "no API key" in by_name["broken"]["error"]
    assert "servers.unset.env.K: NOWHERE is not set" in by_name["unset"]["error"]
    one = portico(config, "test", "broken")
    assert (one.returncode, one.stdout) == (1, "")
    assert one.stderr.startswith("portico: broken ")
    assert portico(config, "test", "unset").stderr.startswith("portico: unset is not started: ")
    assert "did you mean shelf?" in portico(config, "test", "shelff").stderr


def test_a_filter_shows_in_the_test(config: Path, words: Path) -> None:
    assert main(["servers", "add", "shelf", "--", *shelf(words)]) == 0
    config.write_text(config.read_text() + 'tools = { deny = ["one"] }\n')
    assert "3 tools (1 filtered out), " in portico(config, "test", "shelf").stdout
