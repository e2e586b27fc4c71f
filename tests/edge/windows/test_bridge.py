"""Several windows that share one gateway."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from portico import __version__
from portico.edge.windows.control import send_command
from portico.edge.windows.owner_lock import OwnerLock, owner_of
from tests.edge.windows.windows import GONE_S, Street, Window, ended
from tests.support.running import EVERYTHING, WAIT_S, StdioServer
from tests.support.unprivileged import given, unprivileged
from tests.wrap.faults import alive, descendants
from tests.wrap.faults import until as comes


@pytest.fixture
def street(tmp_path: Path) -> Iterator[Street]:
    with Street(tmp_path) as street:
        yield street


def test_five_clients_have_one_owner_and_leave_nothing(street: Street) -> None:
    windows = street.opened(5)
    (owner,) = street.pids_of("owns")
    assert [window.owner() for window in windows] == [owner] * 5
    assert owner not in [window.pid for window in windows]
    assert [window.leave() for window in reversed(windows)] == [0] * 5
    assert comes(lambda: not alive({owner}), GONE_S)
    assert street.left() == []
    assert street.pids_of("leaves") == [owner]
    assert sorted(street.pids_of("ends")) == sorted(window.pid for window in windows)
    assert [window.stderr() for window in windows] == [""] * 5


def test_an_owner_is_nobodys_descendant_and_holds_nothing_of_the_window(street: Street) -> None:
    window = street.window()
    owner = window.owner()
    assert descendants(window.pid) == set()
    assert os.getsid(owner) != os.getsid(window.pid)
    assert os.getpgid(owner) != os.getpgid(window.pid)
    pipes = {os.readlink(f"/proc/{window.pid}/fd/{number}") for number in (0, 1, 2)}
    files = Path(f"/proc/{owner}/fd")
    assert pipes.isdisjoint(os.readlink(file) for file in files.iterdir())
    assert [os.readlink(files / number) for number in "01"] == ["/dev/null"] * 2
    assert os.readlink(files / "2") == f"{street.book}.log"


def test_an_owner_waits_a_moment_for_its_last_window_to_come_back(street: Street) -> None:
    assert street.window(LINGER_S="60").leave() == 0
    back = street.window()
    assert street.pids_of("owns") == [back.owner()]
    street.stop()


def test_ids_of_different_clients_do_not_meet(street: Street) -> None:
    windows = street.opened(3)
    ids = [window.hold(f"of {window.pid}") for window in windows]
    assert len(set(ids)) == 1
    for window in reversed(windows):
        assert windows[0].result_text("release", name=f"of {window.pid}") == "released"
        answer = window.answer_to(ids[0])
        assert answer["result"]["content"][0]["text"] == f"held of {window.pid}"


def test_an_id_in_flight_is_refused_and_the_first_still_answered(street: Street) -> None:
    _, bridge = street.opened(2)
    first = bridge.hold("one")
    bridge.watched = False  # the oracle cannot distinguish the two
    bridge.send({"jsonrpc": "2.0", "id": first, "method": "ping"})
    assert "already in flight" in bridge.answer_to(first)["error"]["message"]
    bridge.result_text("release", name="one")
    assert "result" in bridge.answer_to(first)


@pytest.mark.slow
@pytest.mark.parametrize(("many", "rounds"), [(2, 10), (10, 2)])
def test_of_windows_that_start_at_once_one_starts_the_owner(
    many: int, rounds: int, tmp_path: Path
) -> None:
    for number in range(rounds):
        with Street(tmp_path / str(number)) as street:
            windows = [street.opening() for _ in range(many)]
            for window in windows:
                window.handshake()
            assert {window.owner() for window in windows} == set(street.pids_of("owns"))
            assert len(street.pids_of("owns")) == 1
            assert [window.stderr() for window in windows] == [""] * many


@pytest.mark.parametrize("by_signal", [False, True])
def test_a_client_that_leaves_has_its_calls_finished_as_on_stdio(
    by_signal: bool, street: Street
) -> None:
    other, bridge = street.opened(2)
    id = bridge.hold("one")
    if by_signal:
        bridge.process.send_signal(signal.SIGTERM)
    else:
        bridge.close_input()
    other.result_text("release", name="one")
    assert "result" in bridge.answer_to(id)
    assert bridge.ended() == 0


def test_a_client_that_leaves_for_too_long_has_its_calls_cancelled(street: Street) -> None:
    _, bridge = street.window(DRAIN_S="0.2"), street.window(DRAIN_S="0.2")
    id = bridge.hold("one")
    bridge.close_input()
    street.wait_for("drops one")
    assert bridge.answer_to(id)["error"]["data"] == {"kind": "closed"}
    assert bridge.ended() == 0


def test_the_calls_of_a_bridge_that_is_killed_are_cancelled_at_once(street: Street) -> None:
    other, bridge = street.opened(2)
    bridge.hold("one")
    bridge.kill()
    street.wait_for("drops one")
    assert other.result_text("echo", text="still here") == "still here"


def test_a_call_taken_back_at_a_bridge_is_taken_back_at_the_owner(street: Street) -> None:
    _, bridge = street.opened(2)
    params = {"requestId": bridge.hold("one")}
    bridge.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
    street.wait_for("drops one")
    assert bridge.result_text("echo", text="on") == "on"


def test_a_question_finds_its_client_through_the_bridge(street: Street) -> None:
    _, bridge = street.opened(2)
    id = bridge.call("ask")
    question = bridge.next("elicitation/create")
    bridge.send({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}})
    assert bridge.answer_to(id)["result"]["content"][0]["text"] == "decline"


def test_bad_lines_are_answered_as_on_stdio(street: Street) -> None:
    bad = (b"{", b'{"jsonrpc":"2.0","id":7,"method":1}', b"[]", b"x" * (4 * 1024 * 1024 + 1))
    answers = []
    with StdioServer(EVERYTHING) as plain:
        plain.initialize()
        for client in (plain, street.window()):
            client.watched = False
            for line in bad:
                client.write(line + b"\n")
            answers.append(sorted(json.dumps(client.receive()) for _ in bad))
            assert "result" in client.ask("ping")
    assert answers[0] == answers[1]


def test_whoever_comes_while_the_owner_still_opens_its_house_waits_for_it(street: Street) -> None:
    first = street.opening(SLOW_S="1")
    street.wait_for("owns")
    other = street.window()
    first.handshake()
    assert street.pids_of("owns") == [other.owner()]


# Windows that cannot share the gateway.


def says_once(window: Window, why: str) -> None:
    """Check that stderr reports once why the window serves by itself."""
    words = f"portico: cannot join the running gateway: {why}"
    window.wait_for_stderr(words)
    assert window.stderr().count("starting separate servers for this client") == 1


def test_a_folder_that_cannot_be_used_means_serving_alone(street: Street) -> None:
    street.folder.parent.mkdir(exist_ok=True)
    street.folder.write_text("in the way")
    windows = street.opened(2)
    assert [window.owner() for window in windows] == [window.pid for window in windows]
    for window in windows:
        says_once(window, f"{street.folder} cannot be used: ")
        assert window.leave() == 0
    street.folder.unlink()


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("no fork", "cannot start a process: Resource temporarily unavailable"),
        ("removed", "cannot start a process: see "),
        ("upgraded", f"it runs Portico 99.0, this is {__version__}"),
    ],
)
def test_a_window_whose_owner_cannot_run_serves_by_itself_and_says_so(
    fault: str, why: str, street: Street
) -> None:
    windows = [street.window(OWNER_FAULT=fault, VERSION=__version__) for _ in range(2)]
    assert [window.owner() for window in windows] == [window.pid for window in windows]
    for window in windows:
        says_once(window, why)
        assert len(window.stderr().splitlines()) == 1
    assert [name for name in street.left() if name.endswith(".lock")] == []


def test_who_may_start_no_process_by_its_limits_serves_by_itself(street: Street) -> None:
    given(street.folder.parent)
    window = street.window(by=unprivileged("prlimit", "--nproc=0"))
    assert window.owner() == window.pid
    says_once(window, "cannot start a process: Resource temporarily unavailable")
    assert window.leave() == 0


def test_a_window_that_wants_to_be_alone_has_the_gateway_in_its_process(street: Street) -> None:
    first, alone = street.window(), street.window(ALONE="1")
    assert alone.owner() == alone.pid
    assert first.owner() != alone.pid
    assert alone.stderr() == ""
    assert alone.leave() == 0
    assert street.pids_of("leaves") == [alone.pid]


# Separate gateways.


def test_a_window_of_another_version_starts_its_own_owner_and_the_old_one_stays(
    street: Street,
) -> None:
    old, older = street.opened(2)
    before = old.owner()
    new, newer = (street.window(VERSION="2") for _ in range(2))
    assert new.owner() == newer.owner() != before
    assert old.leave() == 0
    late = street.window()
    assert late.owner() == older.owner() == before
    for window in (older, late):
        assert window.leave() == 0
    assert comes(lambda: not alive({before}), GONE_S)
    assert new.owner() == newer.owner() == street.owner()
    assert [window.stderr() for window in (old, new)] == ["", ""]


def test_another_gateway_has_another_owner(street: Street) -> None:
    one, other, again = street.window(), street.window(KEY="shed"), street.window(KEY="shed")
    assert one.owner() != other.owner() == again.owner()
    assert len(street.owners()) == 2


@pytest.mark.slow
def test_another_account_has_a_gateway_of_its_own_that_its_like_share(street: Street) -> None:
    ana = street.window(ACCOUNT="ana")
    ben, again = street.window(ACCOUNT="ben"), street.window(ACCOUNT="ben")
    anas, bens = ana.owner(), ben.owner()
    assert anas != bens == again.owner()
    assert street.pids_of("owns") == [anas, bens]
    # Its lock is free now, and the windows of the second gateway stay there.
    ana.leave()
    assert comes(lambda: not alive({anas}), GONE_S)
    late = street.window(ACCOUNT="ben")
    assert late.owner() == bens
    ended(bens)
    assert late.owner() == again.owner() == ben.owner() != bens


@pytest.mark.slow
def test_a_window_does_not_wait_for_an_owner_that_hangs(street: Street) -> None:
    street.window()
    owner = street.owner()
    street.signal(signal.SIGSTOP)
    try:
        other = street.window()
        assert other.owner() == other.pid
        says_once(other, f"process {owner}: no response within 5 s")
        assert other.leave() == 0
    finally:
        os.kill(owner, signal.SIGCONT)


@pytest.mark.slow
def test_an_owner_that_always_hangs_up_is_left_alone(street: Street) -> None:
    street.folder.mkdir(parents=True)
    lock = OwnerLock.acquire(str(street.folder), "house-1")
    assert lock is not None
    here = os.getcwd()
    with socket.socket(socket.AF_UNIX) as ill:
        os.chdir(street.folder)
        ill.bind("1.sock")
        os.chdir(here)
        ill.listen()
        lock.announce("1.sock")
        threading.Thread(target=hang_up, args=(ill,), daemon=True).start()
        window = street.window()
        assert window.owner() == window.pid
        assert "the running gateway closes every connection" in window.stderr()
        ill.shutdown(socket.SHUT_RDWR)
    lock.release()


def hang_up(ill: socket.socket) -> None:
    """Accept every connection, then close it."""
    with contextlib.suppress(OSError):
        while True:
            talk, _ = ill.accept()
            with talk:
                talk.recv(1000)
                talk.sendall(b'{"ok":true,"version":"1"}\n')


@pytest.mark.parametrize("stale", [b"", b"1.sock\n", b"../1.sock\n", b"\xff" * 9000, b"1.so"])
def test_what_a_lock_file_says_is_not_believed_without_its_lock(
    stale: bytes, street: Street
) -> None:
    street.folder.mkdir(parents=True)
    lock = street.folder / "serve-house-1.lock"
    lock.write_bytes(stale)
    one, other = street.opened(2)
    assert street.pids_of("owns") == [one.owner()] == [other.owner()]
    assert owner_of(str(street.folder), "house-1") == f"{street.owner()}.sock"


def test_a_lock_is_free_again_whenever_it_is_released(tmp_path: Path) -> None:
    folder = str(tmp_path / "control")
    for _ in range(3):
        mine = OwnerLock.acquire(folder, "k")
        assert mine is not None
        assert OwnerLock.acquire(folder, "k") is None
        other = OwnerLock.acquire(folder, "other")
        assert other is not None
        for one in (mine, other, mine):
            one.release()
    assert os.listdir(folder) == []


# Reports for the operator.


def test_what_the_gateway_says_is_heard_at_every_window(street: Street) -> None:
    one, two = street.opened(2)
    one.result_text("tell", words="the milk is off")
    late = street.window()
    for window in (one, two, late):
        window.wait_for_stderr("portico: the milk is off\n")
    two.result_text("echo", text="")
    assert two.stderr().count("milk") == 1


# The window process.


def test_a_window_loads_none_of_the_gateway() -> None:
    rooms = ("gateway", "agents", "library", "upstream.connections", "core.definitions")
    check = "import sys, portico.edge.windows.window; print(*sorted(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", check], capture_output=True, text=True, check=True, timeout=WAIT_S
    ).stdout.split()
    unwanted = [*(f"portico.{room}" for room in rooms), "uvicorn", "httptools", "jsonschema_rs"]
    assert [name for name in unwanted if name in loaded] == []


# The control socket.


def reached(street: Street) -> socket.socket:
    talk = socket.socket(socket.AF_UNIX)
    talk.settimeout(WAIT_S)
    os.chdir(street.folder)
    talk.connect(f"{street.owner()}.sock")
    return talk


@pytest.fixture
def _here() -> Iterator[None]:
    here = os.getcwd()
    yield
    os.chdir(here)


@pytest.mark.usefixtures("_here")
@pytest.mark.parametrize("garbage", [b"\x00\xff\n" * 100, b"{" * 5000 + b"\n", b"x" * 200_000])
def test_garbage_at_the_door_hurts_nobody(garbage: bytes, street: Street) -> None:
    windows = street.opened(2)
    with reached(street) as talk:
        talk.sendall(garbage)
        assert b'"ok":false' in talk.recv(1000)
    with reached(street) as talk:
        talk.sendall(b'{"do":"attach","generation":"first"}\n')
        assert json.loads(talk.recv(1000))["ok"] is True
        talk.sendall(garbage)
    assert [window.result_text("echo", text="on") for window in windows] == ["on"] * 2
    assert [window.stderr() for window in windows] == [""] * 2
    assert street.log() == ""


def test_an_order_brings_what_it_needs_with_it(street: Street) -> None:
    street.window()
    folder, name = str(street.folder), f"{street.owner()}.sock"
    told = send_command(folder, name, "status", WAIT_S, server="github")
    assert told is not None
    assert (told["ok"], told["order"]) == (True, {"do": "status", "server": "github"})
    assert send_command(folder, "1.sock", "status", WAIT_S) is None
