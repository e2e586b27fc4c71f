"""The records of this user's listeners: true while their process listens, and not longer."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from portico.upstream.auth.own_listeners import ListenerRecord, own_listener

URL = "http://127.0.0.1:8000/mcp"
HOLDS = """
import sys
from pathlib import Path
from portico.upstream.auth.own_listeners import ListenerRecord

record = ListenerRecord.write(Path(sys.argv[1]), [("127.0.0.1", 8000)])
print("ready", flush=True)
sys.stdin.read()
"""


def records(folder: Path) -> list[Path]:
    return sorted((folder / "listeners").iterdir())


def test_a_listener_is_ours_until_its_record_is_removed(tmp_path: Path) -> None:
    assert own_listener(tmp_path, URL) == ""
    record = ListenerRecord.write(tmp_path, [("127.0.0.1", 8000), ("::1", 8000)])
    assert own_listener(tmp_path, URL) == URL
    assert own_listener(tmp_path, URL) == URL
    assert (tmp_path / "listeners").stat().st_mode & 0o777 == 0o700
    assert [path.stat().st_mode & 0o777 for path in records(tmp_path)] == [0o600]
    record.remove()
    record.remove()
    assert own_listener(tmp_path, URL) == ""
    assert records(tmp_path) == []


def test_each_of_two_listeners_has_its_record(tmp_path: Path) -> None:
    first = ListenerRecord.write(tmp_path, [("127.0.0.1", 8000)])
    second = ListenerRecord.write(tmp_path, [("127.0.0.1", 8001)])
    first.remove()
    assert own_listener(tmp_path, URL) == ""
    assert own_listener(tmp_path, URL.replace("8000", "8001"))
    second.remove()


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_the_record_of_a_dead_process_is_removed_and_names_nobody(
    end: signal.Signals, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", HOLDS, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        assert own_listener(tmp_path, URL) == URL
        child.send_signal(end)
        child.wait()
        assert len(records(tmp_path)) == 1
        assert own_listener(tmp_path, URL) == ""
        assert records(tmp_path) == []


def test_a_child_of_the_listener_does_not_keep_its_record(tmp_path: Path) -> None:
    holds = HOLDS.replace(
        "print(", "import subprocess; print(subprocess.Popen(['cat']).pid, flush=True); print("
    )
    command = [sys.executable, "-c", holds, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        grandchild = int(child.stdout.readline())
        try:
            assert child.stdout.readline() == b"ready\n"
            child.kill()
            child.wait()
            assert own_listener(tmp_path, URL) == ""
        finally:
            os.kill(grandchild, signal.SIGKILL)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"\xff",
        b'{"addresses": ["127.0.0.1:8000"], "network": 0}',
        b'{"addresses": [["127.0.0.1", 8000]], "network": 0}',
        b'{"addresses": [["127.0.0.1", 8000]], "network": -1}',
    ],
)
def test_a_record_that_is_none_or_of_another_network_names_nobody(
    data: bytes, tmp_path: Path
) -> None:
    record = ListenerRecord.write(tmp_path, [("127.0.0.1", 8000)])
    records(tmp_path)[0].write_bytes(data)
    assert own_listener(tmp_path, URL) == ""
    record.remove()


def test_a_link_in_the_place_of_a_record_names_nobody(tmp_path: Path) -> None:
    record = ListenerRecord.write(tmp_path, [("127.0.0.1", 8000)])
    path = records(tmp_path)[0]
    elsewhere = tmp_path / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    assert own_listener(tmp_path, URL) == ""
    record.remove()
