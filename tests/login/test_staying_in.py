"""A login lasts: refreshed once for all processes, whatever happens to one of them."""

import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.login.people import Person
from tests.rigs.issuer import IssuerRig
from tests.support.running import WAIT_S
from tests.support.soak import IS_SOAK, times
from tests.wrap.faults import Client, Wrap, portico_command, until

pytestmark = pytest.mark.slow
LIFE_S = 2.0 if IS_SOAK else 6.0
"""The life of a token; a busy machine must not outlast one between two lines."""
PROCESSES = 5


@pytest.fixture
def rig() -> Iterator[IssuerRig]:
    with IssuerRig() as made:
        yield made


@pytest.fixture
def person(tmp_path: Path) -> Person:
    return Person(tmp_path)


def start_call(person: Person, url: str) -> "subprocess.Popen[str]":
    """Begin a call in a process of its own."""
    pipe = subprocess.PIPE
    words = portico_command(person.home, "call", url, "whoami")
    return subprocess.Popen(words, env=person.environment(), stdout=pipe, stderr=pipe, text=True)


class Caller(threading.Thread):
    """Calls a tool at an even pace; keeps every answer that is wrong."""

    def __init__(self, client: Client, calls: int, pause_s: float) -> None:
        super().__init__(daemon=True)
        self.client = client
        self.wrong: list[Any] = []
        self._calls, self._pause_s = calls, pause_s

    def run(self) -> None:
        waiting = threading.Event()
        for _ in range(self._calls):
            answer = self.client.call("whoami")
            if answer.get("result", {}).get("content") != [{"type": "text", "text": "you are ann"}]:
                self.wrong.append(answer)
            waiting.wait(self._pause_s)


@pytest.mark.soak
@pytest.mark.xdist_group("staying in")
def test_five_processes_stay_logged_in_with_one_refresh_for_each_expiry(
    rig: IssuerRig, person: Person, record_property: Any
) -> None:
    rig.life_s = LIFE_S
    person.log_in(rig.url)
    calls, pause_s = times(60, 400), times(25, 45) / 100
    with ExitStack() as stack:
        wraps = [stack.enter_context(Wrap(person.home, rig.url)) for _ in range(PROCESSES)]
        clients = [stack.enter_context(wrap.client()) for wrap in wraps]
        callers = [Caller(client, calls, pause_s) for client in clients]
        began = time.monotonic()
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join(calls * pause_s + 4 * WAIT_S)
        took_s = time.monotonic() - began
        assert [caller.wrong for caller in callers] == [[]] * PROCESSES
        assert len(rig.calls) >= calls * PROCESSES
        assert len(set(rig.refreshes)) == len(rig.refreshes), "no refresh token is used twice"
        # A new token is refreshed after nine tenths of its life at the earliest.
        assert 2 <= len(rig.refreshes) <= took_s / (0.9 * LIFE_S) + 2
        record_property(
            "soak", f"{calls * PROCESSES} calls, {len(rig.refreshes)} refreshes, {took_s:.0f} s"
        )
        rig.revoke_all()
        errors = [client.call("whoami")["error"] for client in clients for _ in range(3)]
        assert {error["data"]["command"] for error in errors} == {
            f"portico servers login {rig.url}"
        }
        ended = [token for token in rig.refreshes if rig.refreshes.count(token) > 1]
        assert ended == [], "one of five asks, and the others read its answer"


def test_two_processes_that_refresh_at_once_send_one_request(
    rig: IssuerRig, person: Person
) -> None:
    person.log_in(rig.url)
    rig.expire_all()
    rig.held = threading.Event()
    calls = [start_call(person, rig.url) for _ in range(2)]
    assert rig.holding.wait(WAIT_S)
    assert until(lambda: sum(path == "/mcp" for _, path, _, _ in rig.requests) >= 3)
    rig.held.set()
    for call in calls:
        out, err = call.communicate(timeout=2 * WAIT_S)
        assert (call.returncode, out) == (0, "you are ann\n"), err
    assert len(rig.refreshes) == 1


def test_a_process_killed_between_answer_and_storage_costs_one_login_with_the_reason(
    rig: IssuerRig, person: Person
) -> None:
    person.log_in(rig.url)
    rig.expire_all()
    rig.held = threading.Event()
    call = start_call(person, rig.url)
    assert rig.holding.wait(WAIT_S)
    call.kill()
    call.communicate(timeout=WAIT_S)
    rig.held.set()
    for _ in range(3):
        done = person.call(rig.url, "whoami")
        assert done.returncode == 1
        assert "a refresh was interrupted before its answer was stored" in done.stderr
        assert f"run `portico servers login {rig.url}`" in done.stderr
    assert len(rig.refreshes) == 2, "no loop"
    person.log_in(rig.url)
    assert person.call(rig.url, "whoami").stdout == "you are ann\n"
