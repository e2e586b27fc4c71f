"""`portico logs`: the end of the gateway's log for people, and what comes, also across files."""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from portico.commands.cli.main import main
from portico.library.observe.log_file import append_bounded
from tests.gateway.observed import Window, prepared
from tests.support.running import WAIT_S

CALL: dict[str, Any] = {
    "kind": "call",
    "time": "2026-08-01T09:30:00.123Z",
    "client": "some-client",
    "server": "maths",
    "tool": "add",
    "method": "tools/call",
    "outcome": "ok",
    "ms": 3.1,
    "arguments": "{a:int}",
}
HEARD = {"kind": "stderr", "time": CALL["time"], "server": "git", "text": "ready"}
EVENT = {"kind": "event", "time": CALL["time"], "text": "the config has changed"}


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PORTICO_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TZ", "UTC")
    path = tmp_path / "home" / "state" / "logs" / "serve.log"
    path.parent.mkdir(parents=True)
    return path


def write(path: Path, *lines: Any) -> None:
    with path.open("a") as file:
        for line in lines:
            file.write(line if isinstance(line, str) else json.dumps(line))
            file.write("\n")


def test_without_a_log_it_says_where_it_would_be(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["logs"]) == 1
    said = f"portico: there is no log yet at {log}; `portico serve` writes it\n"
    assert capsys.readouterr().err == said


def test_each_kind_of_line_is_readable(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(log, CALL, HEARD, EVENT, {**CALL, "outcome": "error -32603", "client": ""})
    assert main(["logs"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [" ".join(line.split()[2:]) for line in lines] == [
        "maths add{a:int} ok 3.1 ms from some-client",
        "git | ready",
        "portico the config has changed",
        "maths add{a:int} error -32603 3.1 ms",
    ]
    assert all(line.startswith("2026-0") for line in lines)


def test_a_server_and_a_number_of_lines_can_be_chosen(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(log, *({**CALL, "tool": f"tool{number}"} for number in range(100)), HEARD, EVENT)
    assert main(["logs", "maths", "-n", "2", "--json"]) == 0
    shown = [json.loads(line)["tool"] for line in capsys.readouterr().out.splitlines()]
    assert shown == ["tool98", "tool99"]
    assert main(["logs", "nobody"]) == 0
    assert capsys.readouterr() == ("", f"portico: no lines of 'nobody' in {log}\n")


def test_what_happened_to_a_server_is_shown_with_its_calls(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cannot = {**EVENT, "text": "git cannot start: there is no command 'gitt'"}
    write(log, cannot, {**EVENT, "text": "gitlab cannot start"}, CALL, HEARD, EVENT)
    assert main(["logs", "git", "--json"]) == 0
    shown = [json.loads(line)["text"] for line in capsys.readouterr().out.splitlines()]
    assert shown == [cannot["text"], "ready"]


def test_the_older_file_is_read_where_the_new_one_has_too_little(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(log.with_name("serve.log.1"), *({**EVENT, "text": f"old {n}"} for n in range(5)))
    write(log, {**EVENT, "text": "new"})
    assert main(["logs", "-n", "3", "--json"]) == 0
    shown = [json.loads(line)["text"] for line in capsys.readouterr().out.splitlines()]
    assert shown == ["old 3", "old 4", "new"]


def test_broken_lines_are_passed_over(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(log, "{", "[1]", "[" * 100_000, '{"kind": 5}', "\x00\ufffd", "", EVENT)
    log.write_bytes(log.read_bytes() + b'\xff\xfe\n{"kind":"event","tex')
    assert main(["logs"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert len(out) == 2
    assert out[-1].endswith("the config has changed")


def test_the_place_in_the_config_counts_and_off_is_told(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "portico.toml"
    config.write_text('[gateway]\nlog = "my.log"\n')
    write(tmp_path / "my.log", EVENT)
    assert main(["logs", "--config", str(config)]) == 0
    assert "the config has changed" in capsys.readouterr().out
    config.write_text('[gateway]\nlog = "off"\n')
    assert main(["logs", "--config", str(config)]) == 1
    assert 'gateway.log is "off" in' in capsys.readouterr().err


def test_what_a_server_wrote_cannot_draw_on_the_terminal(
    log: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(log, {**HEARD, "server": "g\x1b[2Jit", "text": "a\x1b]0;b\x07"})
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert main(["logs"]) == 0
    out = capsys.readouterr().out
    assert "\x07" not in out
    assert "\x1b[2J" not in out
    assert "\x1b]" not in out


class Following:
    """A running `portico logs -f --json`."""

    def __init__(self, *words: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "portico", "logs", "-f", "--json", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def __enter__(self) -> "Following":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()

    def next(self) -> str:
        """What the next line is about."""
        line: dict[str, Any] = json.loads(self._lines.get(timeout=WAIT_S))
        return str(line.get("text") or line.get("tool"))

    def _read(self) -> None:
        assert self.process.stdout is not None
        with contextlib.suppress(ValueError):  # closed under our feet: the test is over
            for line in self.process.stdout:
                self._lines.put(line)


def test_it_follows_across_a_change_of_files_and_ends_well_on_ctrl_c(log: Path) -> None:
    count = 10
    write(log, {**EVENT, "text": "before"})
    with Following() as following:
        assert following.next() == "before"
        for number in range(count):
            line = json.dumps({**EVENT, "text": str(number)}).encode() + b"\n"
            append_bounded(str(log), [line], 300)
            # A log is moved away every 10 MB: not more often than its readers look.
            assert following.next() == str(number)
        assert log.with_name("serve.log.1").exists()
        following.process.send_signal(signal.SIGINT)
        assert following.process.wait(WAIT_S) == 0


def test_it_waits_for_a_log_that_is_not_there_yet(log: Path) -> None:
    with Following("git") as following:
        assert following.process.stderr is not None
        assert following.process.stderr.readline() == f"portico: waiting for {log}\n"
        write(log, CALL, HEARD)
        assert following.next() == "ready"


def test_it_ends_when_nobody_reads_any_more_although_nothing_comes(log: Path) -> None:
    write(log, EVENT)
    command = [sys.executable, "-m", "portico", "logs", "-f"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as following:
        try:
            assert following.stdout is not None
            assert following.stdout.readline().endswith(b"the config has changed\n")
            following.stdout.close()
            assert following.wait(WAIT_S) == 141
        finally:
            following.kill()


def test_half_a_line_is_shown_when_its_end_has_come(log: Path) -> None:
    write(log, {**EVENT, "text": "before"})
    text = json.dumps(EVENT)
    with Following() as following:
        assert following.next() == "before"
        with log.open("a") as file:
            file.write(text[:20])
            file.flush()
            os.fsync(file.fileno())
            file.write(text[20:] + "\n")
        assert following.next() == "the config has changed"


@pytest.mark.slow
def test_a_gateway_writes_down_calls_and_stderr_as_they_come(log: Path, tmp_path: Path) -> None:
    prepared(tmp_path)
    with Window(tmp_path) as window, Following("maths") as following:
        window.ready()
        window.call("execute_tool", name="maths__add", arguments={"a": 41})
        window.call("execute_tool", name="maths__fail", arguments={})
        seen = {following.next() for _ in range(3)}
        assert seen == {"adding 41", "add", "fail"}
        params = {"name": "execute_tool", "arguments": {"name": "maths__wait"}}
        id = window.start("tools/call", params)
        assert following.next() == "waiting"
        notice = {"method": "notifications/cancelled", "params": {"requestId": id}}
        window.send({"jsonrpc": "2.0", **notice})
        assert following.next() == "wait"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    outcomes = {line["tool"]: line["outcome"] for line in lines if line["kind"] == "call"}
    assert (outcomes["add"], outcomes["fail"]) == ("ok", "tool-error")
    assert outcomes["wait"] == "cancelled"
    assert {line["client"] for line in lines if line["kind"] == "call"} == {"tests"}
