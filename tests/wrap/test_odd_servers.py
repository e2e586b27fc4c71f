"""Servers that misbehave at a bad moment: other clients are not affected."""

import json
import os
import signal
import sys
from pathlib import Path

from tests.rigs.wire import dumps
from tests.support.messages import initialize
from tests.wrap.faults import Wrap, until
from tests.wrap.talk import LEGACY, Pipes, Web

SERVER = str(Path(__file__).parent / "servers" / "odd.py")


def odd(mode: str, signs: Path) -> list[str]:
    return ["--", sys.executable, "-I", "-S", SERVER, mode, str(signs)]


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("T")


def test_a_call_cancelled_just_as_it_is_answered_costs_no_other_its_answer(tmp_path: Path) -> None:
    log = ("--log", str(tmp_path / "calls"))  # with a log, each call is a task
    with Pipes(tmp_path / "home", *log, *odd("together", tmp_path)) as client:
        client.hello()
        first, *others = [client.start("echo", text=f"call {n}") for n in range(4)]
        assert until((tmp_path / "held").exists)
        # The input that arrives while it is stopped is read at once when it continues.
        os.kill(client.child.process.pid, signal.SIGSTOP)
        assert until(lambda: is_stopped(client.child.process.pid))
        client.notify("notifications/cancelled", b'{"requestId":%s}' % first)
        (tmp_path / "go").touch()
        assert until((tmp_path / "gone").exists)
        os.kill(client.child.process.pid, signal.SIGCONT)
        assert [client.said(id) for id in others] == ["call 1", "call 2", "call 3"]
        assert first not in client.answers
        assert "Traceback" not in client.child.stderr()


def test_a_server_that_closes_its_input_fails_the_next_call_at_once(tmp_path: Path) -> None:
    with Pipes(tmp_path / "home", *odd("deaf", tmp_path)) as client:
        client.hello()
        assert client.call("echo", text="heard") == "heard"
        assert until((tmp_path / "deaf").exists)
        error = json.loads(client.error(client.start("echo", text="unheard")))
        assert error["data"]["kind"] == "closed"
        assert "closed its input" in error["message"]
        assert client.call("echo", text="heard again") == "heard again"


def test_what_cannot_be_read_before_the_greeting_does_not_cost_the_greeting(
    tmp_path: Path,
) -> None:
    with Pipes(tmp_path / "home", "--init-timeout", "5", *odd("early", tmp_path)) as client:
        assert b'"odd"' in client.hello()
        assert client.call("echo", text="fine") == "fine"


def test_a_server_that_does_not_say_which_versions_it_speaks_is_explained_every_time(
    tmp_path: Path,
) -> None:
    with Pipes(tmp_path / "home", *odd("versionless", tmp_path), modern=True) as client:
        for _ in range(2):
            error = json.loads(client.error(client.request("tools/list")))
            assert "does not list its versions" in error["message"]
        assert "Traceback" not in client.child.stderr()


def test_a_client_whose_greeting_fails_leaves_no_server_of_its_own(tmp_path: Path) -> None:
    options = ("--no-cache", "--list-timeout", "0.5")
    with Wrap(tmp_path / "home", *options, *odd("listless", tmp_path)) as wrap:
        for _ in range(2):
            with Web(wrap.port) as client:
                params = initialize(LEGACY, {"roots": {}})["params"]
                error = client.error(client.request("initialize", dumps(params)))
                assert b"did not answer tools/list" in error
        assert until(lambda: wrap.kin() == 1), "more than the guardian is left"
