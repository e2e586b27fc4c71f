"""`portico search`, `describe` and `call` without a target: tools of the configured servers."""

import json
from pathlib import Path

import pytest

from portico.commands.cli.main import main
from tests.gateway.observed import Window, portico, prepared

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A config whose server is known from the first command on."""
    folder = tmp_path_factory.mktemp("gateway")
    config = prepared(folder)
    ran = portico(folder, "search", "add", "--config", str(config))
    assert "listing the tools of maths for the first time" in ran.stderr
    assert ran.stdout.startswith("maths__add\n  Add two numbers.\n  a:integer*, b:integer\n")
    return folder


def test_a_search_gives_names_and_parameters(folder: Path) -> None:
    words = ("--limit", "1", "--server", "maths", "--config", str(folder / "portico.toml"))
    ran = portico(folder, "search", "sum", "of", "numbers", "--json", *words)
    assert (ran.returncode, ran.stderr) == (0, "")
    (tool,) = json.loads(ran.stdout)
    assert (tool["name"], tool["server"]) == ("maths__add", "maths")


def test_what_cannot_be_searched_says_what_can(folder: Path) -> None:
    config = ("--config", str(folder / "portico.toml"))
    ran = portico(folder, "search", "add", "--server", "nobody", *config)
    assert ran.returncode == 1
    assert "there is no server 'nobody'; the servers are maths (3 tools)" in ran.stderr
    assert portico(folder, "search", "add", "--limit", "0", *config).returncode == 2
    missing = portico(folder, "search", "add", "--config", str(folder / "missing.toml"))
    assert missing.returncode == 1
    assert "missing.toml: no such file" in missing.stderr


def test_a_tool_is_described_whole_and_one_that_is_not_there_is_named(folder: Path) -> None:
    config = ("--config", str(folder / "portico.toml"))
    ran = portico(folder, "describe", "maths__add", "maths__sub", *config)
    assert ran.returncode == 1
    assert ran.stdout.startswith("maths__add  (add of maths)\nAdd two numbers.\n")
    assert '"inputSchema"' in ran.stdout
    assert "there is no tool 'maths__sub'" in ran.stderr
    ran = portico(folder, "describe", *["maths__add"] * 50, "--json", *config)
    assert len(json.loads(ran.stdout)) == 50
    ran = portico(folder, "describe", "maths__add", "--json", *config)
    assert json.loads(ran.stdout)[0]["definition"]["description"] == "Add two numbers."


def test_a_tool_is_called_by_its_name_alone(folder: Path) -> None:
    config = ("--config", str(folder / "portico.toml"))
    with Window(folder) as window:
        window.ready()
        assert portico(folder, "call", "maths__add", '{"a": 2}', *config).stdout == "3\n"
        assert portico(folder, "call", *config, "maths__add", "--arg", "a=4").stdout == "5\n"
        stdin = portico(folder, "call", "maths__add", "-", *config, stdin='{"a": 6}')
        failed = portico(folder, "call", "maths__fail", *config)
    assert stdin.stdout == "7\n"
    assert (failed.returncode, failed.stdout) == (1, "")
    assert "way" in failed.stderr


def test_a_call_that_cannot_be_says_what_can(folder: Path) -> None:
    config = ("--config", str(folder / "portico.toml"))
    wrong = portico(folder, "call", "maths__ad", *config)
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert "there is no tool 'maths__ad'" in wrong.stderr
    assert "did you mean maths__add?" in wrong.stderr
    bad = portico(folder, "call", "maths__add", '{"a": "x"}', *config)
    assert bad.returncode == 1
    assert "it takes a:integer*, b:integer" in bad.stderr


def test_a_gateway_that_runs_is_the_one_that_is_asked(folder: Path) -> None:
    config = ("--config", str(folder / "portico.toml"))
    with Window(folder) as window:
        window.ready()
        assert portico(folder, "call", "maths__add", '{"a": 2}', *config).stdout == "3\n"
        ran = portico(folder, "status", "--json", *config)
        (status,) = json.loads(ran.stdout)
    assert status["pid"] == window.owner
    assert window.process.returncode == 0


def test_a_gateway_logs_what_its_user_calls_and_not_what_commands_ask(tmp_path: Path) -> None:
    config = ("--config", str(prepared(tmp_path)))
    with Window(tmp_path) as window:
        window.ready()
        for words in (
            ("search", "add"),
            ("describe", "maths__add"),
            ("call", "maths__add", "--arg", "a=2"),
            ("servers", "refresh"),
            ("status",),
        ):
            ran = portico(tmp_path, *words, *config)
            assert ran.returncode == 0, ran.stderr
    log = (tmp_path / "home" / "state" / "logs" / "serve.log").read_text().splitlines()
    calls = [line for line in map(json.loads, log) if line["kind"] == "call"]
    # The first is the test's own.
    assert [(call["server"], call["tool"]) for call in calls] == [
        ("", "refresh_tools"),
        ("maths", "add"),
    ]


def test_a_gateway_that_is_configured_for_http_is_asked_all_the_same(tmp_path: Path) -> None:
    config = prepared(tmp_path, '[gateway]\nhttp = "127.0.0.1:1"\n')
    ran = portico(tmp_path, "call", "maths__add", '{"a": 2}', "--config", str(config))
    assert ran.stdout == "3\n", ran.stderr


def test_a_tool_that_is_newer_than_what_is_stored_is_asked_for(tmp_path: Path) -> None:
    config = str(prepared(tmp_path))
    assert portico(tmp_path, "describe", "maths__add", "--config", config).returncode == 0
    source = (tmp_path / "maths.py").read_text()
    (tmp_path / "maths.py").write_text(source.replace("def add(", "def plus("))
    ran = portico(tmp_path, "call", "maths__plus", '{"a": 2}', "--config", config)
    assert (ran.returncode, ran.stdout) == (0, "3\n")
    ran = portico(tmp_path, "call", "maths__add", '{"a": 2}', "--config", config)
    assert "there is no tool 'maths__add'" in ran.stderr


def test_without_a_gateway_a_refresh_starts_the_servers_for_as_long(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    prepared(tmp_path / "home" / "config", '[servers.gone]\ncommand = "no-such-program"\n')
    ran = portico(tmp_path, "servers", "refresh")
    assert ran.returncode == 1
    assert ran.stdout.startswith("maths  idle  3 tools")
    assert ran.stderr.startswith("portico: gone cannot start: ")
    (told,) = json.loads(portico(tmp_path, "servers", "refresh", "maths", "--json").stdout)
    assert (told["ok"], told["tools"]) == (True, 3)
    other = prepared(tmp_path)
    ran = portico(tmp_path, "servers", "refresh", "--config", str(other))
    assert (ran.returncode, ran.stderr) == (0, "")
    ran = portico(tmp_path, "servers", "refresh", "nobody")
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "there is no server 'nobody'" in ran.stderr


def test_a_configured_server_that_fails_by_itself_points_to_the_gateway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PORTICO_HOME", str(tmp_path))
    config = prepared(tmp_path / "config")
    assert config == tmp_path / "config" / "portico.toml"
    assert main(["call", "maths", "add", '{"a": 1}']) == 0
    assert capsys.readouterr().out == "2\n"
    config.write_text('[servers.true]\ncommand = "x"\n')  # there is a program of that name
    assert main(["call", "true", "add", '{"a": 1}']) == 1
    assert "run `portico call true__add`" in capsys.readouterr().err


def test_a_server_that_cannot_be_asked_is_not_asked_by_each_search(tmp_path: Path) -> None:
    prepared(tmp_path, '[servers.gone]\ncommand = "no-such-program"\n')
    config = ("--config", str(tmp_path / "portico.toml"))
    why = (
        "portico: gone cannot start: there is no command 'no-such-program'; "
        "check its name and your PATH\n"
    )
    with Window(tmp_path) as window:
        window.ready()
        window.call("refresh_tools")
        for _ in range(2):
            ran = portico(tmp_path, "search", "add", *config)
            assert (ran.returncode, ran.stderr) == (0, why)
        ran = portico(tmp_path, "describe", "gone__tool", *config)
        assert ran.stderr.startswith(f"listing the tools of gone for the first time ...\n{why}")


def test_a_search_waits_for_vectors_and_says_why_there_are_none(tmp_path: Path) -> None:
    config = str(prepared(tmp_path, "[search]\nvectors = true\n"))
    portico(tmp_path, "describe", "maths__add", "--config", config)
    ran = portico(tmp_path, "search", "plus", "--limit", "1", "--config", config)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith("maths__add\n")
    config = str(prepared(tmp_path, '[search]\nvectors = true\nmodel = "nowhere"\n'))
    ran = portico(tmp_path, "search", "plus", "--limit", "1", "--config", config)
    assert ran.returncode == 1
    assert "portico: searched without vectors: " in ran.stderr


@pytest.mark.parametrize("words", [[""], [" ", "\t"]])
def test_nothing_to_search_for_is_wrong_usage(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["search", *words]) == 2
    assert "QUERY is empty; describe in plain words what you need" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["search", "x", "--limit", "51"], "'51' is not a number from 1 to 50"),
        (["search", "x", "--limit", "9" * 5000], "' is not a number from 1 to 50"),
        (["logs", "-n", "9" * 5000], "' is not a number of lines"),
    ],
)
def test_a_number_that_is_too_large_is_wrong_usage(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["http://127.0.0.1:1/mcp"], "TOOL is missing after http://127.0.0.1:1/mcp:"),
        (["python"], "TOOL is missing after python:"),
        (["server.py", '{"a": 1}'], "TOOL is missing after server.py:"),
        (["", "{}"], "TOOL is empty"),
        (["a", "b", "c", "d"], "expected TARGET TOOL JSON"),
        (["maths__add", "--env", "A=b"], "--env need a TARGET"),
        (["http://127.0.0.1:1/mcp", "add", "--config", "x"], "remove it or the TARGET"),
    ],
)
def test_words_that_do_not_fit_are_wrong_usage(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["call", *words]) == 2
    assert said in capsys.readouterr().err
