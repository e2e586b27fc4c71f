"""The names of configured servers as components of `run`, `call` and `inspect`."""

import json
import os
import sys
from pathlib import Path

import pytest

from portico.core.config.paths import config_file
from portico.core.documents.problems import ConfigError
from portico.library.components.aliases import ConfigAliases
from tests.gateway.observed import portico, prepared

CONFIG = """
[servers.git]
command = "echo"
args = ["hello"]
env = { TOKEN = "${ALIAS_TOKEN}" }

[servers.other]
command = "other"
env = { TOKEN = "${OTHER_TOKEN}" }
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PORTICO_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def configure(text: str) -> None:
    os.makedirs(os.path.dirname(config_file()), exist_ok=True)
    Path(config_file()).write_text(text)


def test_an_alias_is_read_with_its_own_variables_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALIAS_TOKEN", "secret")
    configure(CONFIG)
    aliases = ConfigAliases()
    assert list(aliases) == ["git", "other"]
    assert aliases["git"].env == {"TOKEN": "secret"}
    assert "OTHER_TOKEN" in aliases["other"].problem
    assert "nothing" not in aliases
    with pytest.raises(KeyError):
        aliases["nothing"]


def test_without_a_config_there_are_no_aliases(capfd: pytest.CaptureFixture[str]) -> None:
    assert len(ConfigAliases()) == 0
    assert capfd.readouterr().err == ""


def test_a_broken_default_config_is_reported_once(capfd: pytest.CaptureFixture[str]) -> None:
    configure("[servers.git\n")
    aliases = ConfigAliases()
    assert ("git" in aliases, "x" in aliases) == (False, False)
    assert capfd.readouterr().err.count("not valid TOML") == 1
    assert list(ConfigAliases(quiet=True)) == []
    assert capfd.readouterr().err == ""


def test_a_broken_config_that_was_chosen_is_an_error(home: Path) -> None:
    (home / "mine.toml").write_text("[servers.git\n")
    with pytest.raises(ConfigError, match="not valid TOML"):
        list(ConfigAliases(str(home / "mine.toml")))


def test_a_broken_config_does_not_break_a_file(home: Path) -> None:
    prepared(home)
    configure("[servers.git\n")
    for target in ("maths.py", "./maths.py", f"{sys.executable} -m portico run maths.py"):
        ran = portico(home, "call", target, "add", "--arg", "a=2")
        assert (ran.returncode, ran.stdout, ran.stderr) == (0, "3\n", ""), target


def test_a_configured_server_is_called_by_its_name(home: Path) -> None:
    config = str(prepared(home))
    ran = portico(home, "call", "maths", "add", '{"a": 2}', "--config", config)
    assert (ran.returncode, ran.stdout) == (0, "3\n"), ran.stderr
    ran = portico(home, "call", "maths", "--config", config)
    assert ran.returncode == 2
    assert "TOOL is missing after maths" in ran.stderr
    ran = portico(home, "call", "math", "add", "--config", config)
    assert "'math' is neither a file, an alias nor a command; did you mean maths?" in ran.stderr
    ran = portico(home, "call", "maths.py", "add", "--config", config)
    assert "--config is for configured servers" in ran.stderr


def test_a_configured_server_is_inspected_by_its_name(home: Path) -> None:
    ran = portico(home, "inspect", "maths", "--json", "--config", str(prepared(home)))
    assert ran.returncode == 0, ran.stderr
    assert [tool["name"] for tool in json.loads(ran.stdout)["tools"]] == ["add", "wait", "fail"]


def test_a_configured_server_is_a_component_of_run(home: Path) -> None:
    configure(prepared(home).read_text())
    run = f"{sys.executable} -m portico run"
    ran = portico(home, "call", f"{run} maths", "add", "--arg", "a=2")
    assert (ran.returncode, ran.stdout) == (0, "3\n"), ran.stderr
    ran = portico(home, "call", f"{run} sums=maths --prefix", "sums__add", "--arg", "a=2")
    assert (ran.returncode, ran.stdout) == (0, "3\n"), ran.stderr


def test_its_filter_holds_and_its_failure_names_the_gateway(home: Path) -> None:
    config = prepared(home, '\n[servers.maths.tools]\ndeny = ["fail"]\n')
    with config.open("a") as file:
        file.write('[servers.gone]\ncommand = "false"\n[servers.lacks]\ncommand = "${NOT_SET}"\n')
    ran = portico(home, "call", "maths", "fail", "--config", str(config))
    assert "cannot call fail: the config filters it out (servers.maths.tools)" in ran.stderr
    ran = portico(home, "call", "gone", "x", "--config", str(config))
    assert "through the gateway, run `portico call gone__x`" in ran.stderr
    ran = portico(home, "call", "lacks", "x", "--config", str(config))
    assert ran.returncode == 1
    assert "NOT_SET" in ran.stderr


def test_a_variable_for_a_configured_server_belongs_in_the_config(home: Path) -> None:
    config = str(prepared(home))
    ran = portico(home, "call", "maths", "add", "--env", "A=b", "--config", config)
    assert ran.returncode == 2
    assert "for a configured server, set it in the config" in ran.stderr
