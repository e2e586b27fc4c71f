"""Commands in a shell that lacks the config's variables: a gateway that runs has them."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from portico import __version__
from portico.core.model.errors import McpError
from portico.edge.client.client import Client
from portico.edge.client.connect import connect
from portico.edge.windows.owner_wire import OwnerAddress
from tests.gateway.observed import Gateway, Window, portico, prepared
from tests.support.running import WAIT_S
from tests.wrap.standing import until

pytestmark = pytest.mark.slow

_SERVER = '''
import asyncio
import os
from pathlib import Path

from portico import Server

server = Server("maths", version="1.0")


@server.tool
def key() -> str:
    """Tell which key it was given."""
    return os.environ["KEY"]


@server.tool
async def hold(folder: str) -> str:
    """Wait until it may go."""
    Path(folder, "held").touch()
    while not Path(folder, "go").exists():
        await asyncio.sleep(0.02)
    return "gone"
'''


class Shells:
    """A config that takes a variable, and shells that have it or do not."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.config = str(prepared(folder, 'env = { KEY = "${SHELL_KEY}" }\n'))
        (folder / "maths.py").write_text(_SERVER)
        self._patch = monkeypatch
        self.set(None)

    def set(self, key: str | None) -> None:
        """What the next shell has."""
        if key is None:
            self._patch.delenv("SHELL_KEY", raising=False)
        else:
            self._patch.setenv("SHELL_KEY", key)

    def gateway(self, key: str) -> Gateway:
        """One whose shell has this key; the next one has none."""
        self.set(key)
        gateway = Gateway(self.folder, "--http", "0")
        self.set(None)
        return gateway

    def run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """A command, which must not fail."""
        ran = portico(self.folder, *words, "--config", self.config)
        assert ran.returncode == 0, ran.stderr
        return ran

    def refused(self, *words: str) -> str:
        """Why a command fails."""
        ran = portico(self.folder, *words, "--config", self.config)
        assert (ran.returncode, ran.stdout) == (1, "")
        return ran.stderr

    @property
    def unset(self) -> str:
        """The error where the variable is not set."""
        what = "servers.maths.env.KEY: SHELL_KEY is not set"
        return f"portico: {self.config}:4: {what}; set it, or write ${{SHELL_KEY:-default}}\n"

    def holding(self) -> "subprocess.Popen[str]":
        """A call that is under way."""
        words = ("call", "maths__hold", json.dumps({"folder": str(self.folder)}))
        call = subprocess.Popen(
            [sys.executable, "-m", "portico", *words, "--config", self.config],
            env={**os.environ, "PORTICO_HOME": str(self.folder / "home")},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        until((self.folder / "held").exists, "it is not called")
        return call


@pytest.fixture
def shells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shells]:
    yield Shells(tmp_path, monkeypatch)
    (tmp_path / "go").touch()


def test_a_gateway_that_has_the_variables_is_asked_by_who_has_not(shells: Shells) -> None:
    with shells.gateway("ana") as gateway:
        assert shells.run("search", "which", "key").stdout.startswith("maths__key\n")
        assert shells.run("describe", "maths__key").stdout.startswith("maths__key  (key of maths)")
        assert shells.run("call", "maths__key").stdout == "ana\n"
        (status,) = json.loads(shells.run("status", "--json").stdout)
        (listed,) = json.loads(shells.run("servers", "list", "--json").stdout)
        refreshed = portico(shells.folder, "servers", "refresh", "--json")
        until(lambda: "key{}  ok" in shells.run("logs").stdout, "the call is not logged")
        pid = gateway.process.pid
    assert (status["pid"], listed["pid"]) == (pid, pid)
    assert [one["ok"] for one in json.loads(refreshed.stdout)] == [True]


def test_so_is_one_that_a_client_has_started(shells: Shells) -> None:
    shells.set("ana")
    with Window(shells.folder) as window:
        window.ready()
        shells.set(None)
        assert shells.run("call", "maths__key").stdout == "ana\n"


def test_where_none_runs_a_server_without_its_variables_is_known_but_not_called(
    shells: Shells,
) -> None:
    with shells.gateway("ana"):
        shells.run("search", "key")
    assert shells.run("search", "which", "key").stdout.startswith("maths__key\n")
    assert shells.run("describe", "maths__key").stdout.startswith("maths__key  (key of maths)")
    ran = portico(shells.folder, "call", "maths__key", "--config", shells.config)
    assert ran.returncode == 1
    assert "maths is not started: " in ran.stderr
    assert "SHELL_KEY is not set" in ran.stderr


def test_one_that_was_killed_is_not_taken_for_one_that_runs(shells: Shells) -> None:
    shells.set("ana")
    window = Window(shells.folder)
    with window:
        window.ready()
        shells.set(None)
        owner = window.owner
        os.kill(window.process.pid, signal.SIGKILL)
        os.kill(owner, signal.SIGKILL)
        window.process.wait(WAIT_S)
        ran = portico(shells.folder, "call", "maths__key", "--config", shells.config)
        assert ran.returncode == 1
        assert "SHELL_KEY is not set" in ran.stderr


def test_of_several_accounts_only_the_variables_can_tell_which_is_meant(shells: Shells) -> None:
    with shells.gateway("ana") as ana, shells.gateway("ben") as ben:
        for key in ("ana", "ben"):
            shells.set(key)
            assert shells.run("call", "maths__key").stdout == f"{key}\n"
        shells.set(None)
        error = shells.refused("call", "maths__key")
        first, second = sorted((ana.process.pid, ben.process.pid))
    assert error == (
        f"{shells.unset}process {first} and process {second} serve this config with different "
        "accounts: set the variables above as for the gateway to use\n"
    )


def test_a_shell_with_another_account_is_not_served_with_the_first_ones(shells: Shells) -> None:
    with shells.gateway("ana"):
        shells.set("ben")
        assert shells.run("call", "maths__key").stdout == "ben\n"


def test_what_else_is_wrong_with_the_config_is_told_all_the_same(shells: Shells) -> None:
    with shells.gateway("ana"):
        with open(shells.config, "a") as file:
            file.write("[servers.other]\ncomand = 'x'\n")
        ran = shells.run("call", "maths__key")
    assert ran.stdout == "ana\n"
    stderr = ran.stderr
    assert "SHELL_KEY is not set" in stderr
    assert "did you mean command?" in stderr


async def asked_on(client: Client) -> None:
    """Ask until that is refused."""
    while True:
        await client.call_tool("gateway_status", {})


async def test_a_gateway_that_leaves_finishes_calls_and_takes_no_more(shells: Shells) -> None:
    with shells.gateway("ana") as gateway:
        control = shells.folder / "home" / "state" / "control"
        owner = OwnerAddress(str(control), f"{gateway.process.pid}.sock", __version__)
        async with await connect(owner) as client:
            await client.call_tool("refresh_tools", {})
            hold = {"name": "maths__hold", "arguments": {"folder": str(shells.folder)}}
            call = asyncio.create_task(client.call_tool("execute_tool", hold))
            await asyncio.to_thread(until, (shells.folder / "held").exists, "it is not called")
            gateway.process.terminate()
            with pytest.raises(McpError, match="the server is shutting down"):
                await asyncio.wait_for(asked_on(client), WAIT_S)
            (shells.folder / "go").touch()
            assert (await call)["content"] == [{"type": "text", "text": "gone"}]
        gateway.process.wait(WAIT_S)


def test_a_call_ends_at_once_when_its_gateway_is_killed(shells: Shells) -> None:
    shells.set("ana")
    with Window(shells.folder) as window:
        window.ready()
        shells.set(None)
        call = shells.holding()
        os.kill(window.owner, signal.SIGKILL)
        _, err = call.communicate(timeout=WAIT_S)
    assert call.returncode == 1
    assert "the gateway has ended" in err
