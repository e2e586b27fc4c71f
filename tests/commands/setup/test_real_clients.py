"""The entry that Portico writes, used by the real clients: they connect to it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from portico.commands.cli.main import main
from tests.commands.setup.samples import on_system
from tests.support.node import environment, gemini, node, qwen
from tests.support.running import WAIT_S
from tests.wrap.faults import until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("real-clients")]

SCRIPTS = {"qwen": qwen, "gemini": gemini}
SERVER = '[servers.clock]\ncommand = "{python}"\nargs = ["-m", "portico", "run", "{file}"]\n'
CLOCK = '''from portico import Server

server = Server("clock")


@server.tool
def now() -> str:
    """Tell the time."""
    return "noon"
'''


@pytest.mark.parametrize("client", ["qwen", "gemini"])
def test_a_real_client_connects_by_the_written_entry(
    client: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, project = tmp_path / "home", tmp_path / "project"
    on_system(monkeypatch, home)
    project.mkdir()
    (tmp_path / "clock.py").write_text(CLOCK)
    config = tmp_path / "portico.toml"
    config.write_text(SERVER.format(python=sys.executable, file=tmp_path / "clock.py"))
    assert main(["install", client, "--config", str(config), "--yes"]) == 0
    trusted = home / ".gemini" / "trustedFolders.json"  # else Gemini CLI starts nothing
    trusted.parent.mkdir(exist_ok=True)
    trusted.write_text(json.dumps({str(project): "TRUST_FOLDER"}))
    command = [str(node()), str(SCRIPTS[client]()), "mcp", "list"]
    environ = {**environment(home), "NO_COLOR": "1"}

    def shown() -> str:
        done = subprocess.run(
            command,
            cwd=project,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=4 * WAIT_S,
            check=False,
        )
        return f"{done.stdout}{done.stderr}"

    # On a busy machine the client may not have the patience to wait for the first start.
    connected = f"serve --config {config} --client {client} (stdio) - Connected"
    assert until(lambda: connected in shown())
    log = home / "portico" / "state" / "logs" / "serve.log"
    assert until(lambda: log.exists() and f"serves {config}" in log.read_text())
