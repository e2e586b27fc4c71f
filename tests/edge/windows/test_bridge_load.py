"""Large messages, slow clients and many windows, through a bridge."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from portico.edge.windows.control import send_command
from tests.edge.windows.windows import Street, Window
from tests.support.running import WAIT_S
from tests.support.shared import ROOT
from tests.wrap.standing import until

MEGABYTE = 1024 * 1024


@pytest.fixture
def street(tmp_path: Path) -> Iterator[Street]:
    with Street(tmp_path) as street:
        yield street


def holds(street: Street) -> tuple[int, int]:
    """The owner's tasks and descriptors."""
    status = send_command(str(street.folder), f"{street.owner()}.sock", "status", WAIT_S)
    assert status is not None
    return status["tasks"], status["files"]


def test_lines_of_many_megabytes_pass_whole_both_ways(street: Street) -> None:
    _, bridge = street.opened(2)
    text = "y" * (3 * MEGABYTE)
    ids = [bridge.call("echo", text=text) for _ in range(4)]
    large = bridge.call("pour", size=24 * MEGABYTE)
    for id in ids:
        assert bridge.answer_to(id)["result"]["content"][0]["text"] == text
    assert len(bridge.answer_to(large)["result"]["content"][0]["text"]) == 24 * MEGABYTE


def rss_kib(pid: int) -> int:
    """A process's resident memory."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


class NonReading(Window):
    """A client that writes and does not read."""

    def _read(self) -> None:
        pass


def test_a_client_that_stops_reading_stops_nobody_else(street: Street) -> None:
    other, bridge = street.opened(2)
    before = rss_kib(street.owner())
    with NonReading(street) as stuck:
        stuck.watched = False
        for id in range(40):
            params = {"name": "pour", "arguments": {"size": MEGABYTE}}
            stuck.send({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
            assert bridge.result_text("echo", text=str(id)) == str(id)
        assert other.result_text("echo", text="on") == "on"
        assert rss_kib(street.owner()) < before + 64 * 1024
        assert rss_kib(stuck.pid) < 64 * 1024
        assert stuck.process.stdout is not None
        answers = [json.loads(stuck.process.stdout.readline()) for _ in range(40)]
        assert [answer["id"] for answer in answers] == list(range(40))
    assert (other.stderr(), street.log()) == ("", "")


@pytest.mark.slow
def test_windows_that_come_and_go_leave_nothing_at_the_owner(street: Street) -> None:
    street.window()
    before = holds(street)
    for _ in range(3):
        others = [Window(street) for _ in range(6)]
        for number, window in enumerate(others):
            window.handshake()
            window.call("hold", name=f"of {window.pid}")
            street.wait_for(f"holds of {window.pid}")
            if number % 2:
                window.kill()
        for window in others:
            window.process.kill()
            window.__exit__()
    until(lambda: holds(street) <= before, f"more than {before}")
    assert street.left() == [f"{street.owner()}.sock", "serve-house-1.lock"]


@pytest.mark.slow
def test_a_gateway_may_have_more_clients_than_askers(street: Street) -> None:
    street.window()
    windows = [Window(street) for _ in range(20)]
    try:
        for window in windows:
            window.handshake()
        assert {window.owner() for window in windows} == {street.owner()}
        assert holds(street)[0] > 20
    finally:
        for window in windows:
            window.__exit__()


def test_input_from_a_file_is_answered_through_a_bridge(street: Street, tmp_path: Path) -> None:
    first = street.window()
    asked = tmp_path / "asked"
    asked.write_text(
        "".join(f'{{"jsonrpc":"2.0","id":{n},"method":"ping"}}\n' for n in range(1000))
    )
    with asked.open("rb") as lines:
        ran = subprocess.run(
            first.command, stdin=lines, capture_output=True, check=True, timeout=WAIT_S, cwd=ROOT
        )
    assert [json.loads(line)["id"] for line in ran.stdout.splitlines()] == list(range(1000))
