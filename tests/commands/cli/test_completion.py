"""`portico completion`: what is suggested, and that real shells show it."""

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from portico import __version__
from portico.commands.cli.main import COMMANDS, main
from tests.gateway.observed import portico, prepared
from tests.support.running import WAIT_S
from tests.support.shared import unavailable

_SHELLS = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], "source <(portico completion bash)"),
    "zsh": (["zsh", "-f", "-i"], "source <(portico completion zsh)"),
    "fish": (["fish", "--no-config"], "portico completion fish | source"),
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two configured servers, of which one said what it offers."""
    monkeypatch.setenv("PORTICO_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    config = tmp_path / "home" / "config"
    config.mkdir(parents=True)
    text = '[servers.off]\ncommand = "x"\nenabled = false\n[groups.work]\nservers = ["maths"]\n'
    prepared(tmp_path, text).rename(config / "portico.toml")
    return tmp_path


def suggested(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    assert main(["completion", "suggest", *words]) == 0
    return [line.partition("\t")[0] for line in capsys.readouterr().out.splitlines()]


def test_commands_come_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert set(suggested(capsys, "")) == {*COMMANDS, "help", "--help", "--version"}
    assert suggested(capsys, "se") == ["serve", "search", "servers"]
    assert suggested(capsys, "help", "stat") == ["status"]
    assert suggested(capsys, "nonsense", "") == []


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        ("serve --auth |", ["token", "none"]),
        ("serve --auth n|", ["none"]),
        ("serve --auth=n|", ["--auth=none"]),
        ("serve --auth = n|", ["none"]),
        ("serve --config |", [":files"]),
        ("serve --group |", ["work"]),
        ("serve --http |", []),
        ("call x y --save |", [":folders"]),
        (
            "servers |",
            "list add remove enable disable test refresh login logout".split(),  # noqa: SIM905
        ),
        ("servers remove |", ["maths", "off"]),
        ("servers login |", ["maths", "off"]),
        ("servers add |", []),
        ("servers add new |", [":commands"]),
        ("servers add new npx --env |", [":files"]),
        ("servers add new https://x --hea|", ["--header"]),
        ("logs |", ["maths", "off"]),
        ("logs maths |", []),
        ("search --server m|", ["maths"]),
        ("run a.py |", [":files"]),
        ("wrap |", [":commands"]),
        ("wrap --http 8000 n|", [":commands"]),
        ("wrap npx --h|", [":files"]),
        ("wrap -- --h|", [":files"]),
        ("wrap https://x --call|", ["--call-timeout"]),
        ("completion |", ["bash", "zsh", "fish"]),
        ("status --watch --|", ["--help", "--config", "--json"]),
    ],
)
def test_what_may_follow_is_suggested(
    home: Path, capsys: pytest.CaptureFixture[str], typed: str, wanted: list[str]
) -> None:
    assert suggested(capsys, *typed.removesuffix("|").split(" ")) == wanted


def test_an_option_is_suggested_once_unless_it_repeats(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert suggested(capsys, "wrap", "--env", "A=b", "--warm", "--env") == ["--env"]
    assert suggested(capsys, "wrap", "--env", "A=b", "--warm", "--war") == []


@pytest.mark.slow
def test_tools_are_suggested_as_servers_offered_them_last(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert suggested(capsys, "describe", "") == []
    assert portico(home, "servers", "refresh", "maths").returncode == 0
    assert suggested(capsys, "describe", "maths__a") == ["maths__add"]
    tools = ["maths__add", "maths__fail", "maths__wait"]
    assert suggested(capsys, "describe", "maths__add", "") == tools
    assert suggested(capsys, "call", "") == [*tools, ":files"]


@pytest.mark.parametrize("text", ["[servers.a\n", "\0", None])
def test_a_config_that_cannot_be_read_suggests_nothing_and_does_not_fail(
    home: Path, capsys: pytest.CaptureFixture[str], text: str | None
) -> None:
    config = home / "portico.toml"
    if text is not None:
        config.write_text(text)
    for words in (("logs", "--config", str(config), ""), ("describe", f"--config={config}", "")):
        assert suggested(capsys, *words) == []


class Typed:
    """An interactive shell on a terminal of its own, with Portico's script loaded."""

    def __init__(self, shell: str, folder: Path) -> None:
        argv, load = _SHELLS[shell]
        if shutil.which(argv[0]) is None:
            unavailable(f"{shell} is not installed")
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
        env = {**os.environ, "PATH": path, "HOME": str(folder), "TERM": "xterm", "COLUMNS": "200"}
        self._keeper, terminal = pty.openpty()
        self._process = subprocess.Popen(
            argv,
            cwd=folder,
            env=env,
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
        )
        os.close(terminal)
        self.type(f"{load}; echo lo''aded\r")
        self.until("loaded\r\n")

    def type(self, keys: str) -> None:
        os.write(self._keeper, keys.encode())

    def until(self, wanted: str) -> None:
        """Wait until this is shown."""
        shown, deadline = "", time.monotonic() + WAIT_S
        while wanted not in shown:
            left = deadline - time.monotonic()
            ready, _, _ = select.select([self._keeper], [], [], max(0.0, left))
            assert ready, f"{wanted!r} is not in {shown!r}"
            shown += os.read(self._keeper, 65536).decode(errors="replace")

    def close(self) -> None:
        os.close(self._keeper)
        self._process.kill()
        self._process.wait()


@pytest.mark.slow
@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_a_shell_completes_what_is_typed(home: Path, shell: str) -> None:
    typed = Typed(shell, home)
    try:
        for keys, wanted in (
            ("portico servers remo\t", "remove"),
            (" mat\t", "maths"),
            (" --con\t", "--config"),
            (" mat\t", "maths.py"),
        ):
            typed.type(keys)
            typed.until(wanted)
    finally:
        typed.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("portico stat", "status\tshow the state of gateways"),
        ("portico servers remove m", "maths"),
        ("portico serve --auth=n", "--auth=none"),
        ("portico run ma", "maths.py"),
    ],
)
def test_fish_completes_what_is_typed(home: Path, line: str, wanted: str) -> None:
    if shutil.which("fish") is None:
        unavailable("fish is not installed")
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    ran = subprocess.run(
        ["fish", "--no-config", "-c", f"portico completion fish | source; complete -C '{line}'"],
        cwd=home,
        env={**os.environ, "PATH": path, "HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=True,
    )
    assert ran.stdout.startswith(wanted)


def test_a_shell_that_is_not_known_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "tcsh"]) == 2
    assert "bash" in capsys.readouterr().err
    assert main(["completion"]) == 2


def test_the_version_is_a_command_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    assert capsys.readouterr().out == f"portico {__version__}\n"
