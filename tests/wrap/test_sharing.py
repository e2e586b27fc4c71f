"""Which clients share a child, what stays separate, and when a child starts and ends."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.rigs.recorder import recorded
from tests.rigs.running import bad, recorder
from tests.rigs.wire import dumps, raw_member
from tests.support.running import teed
from tests.wrap.faults import Wrap, alive, command_line, descendants, until
from tests.wrap.talk import Client, Pipes, web

PLAIN = bad("stdio", "plain")
ELICITS: dict[str, Any] = {"elicitation": {}}
PERSON = {"elicitation/create": {"action": "accept", "content": {"name": "Ada"}}}
FOREVER_MS = 120_000
NOTE = {"uri": "test://note"}


def busy(client: Client) -> bytes:
    """A call that the child is at, and will be for long; its id."""
    token = f"busy {len(client.told)}"
    id = client.start("slow", meta={"progressToken": token}, ms=FOREVER_MS, steps=1200)
    client.next("notifications/progress")
    return id


def cancel(client: Client, id: bytes) -> None:
    client.notify("notifications/cancelled", b'{"requestId":%s}' % id)


def children(portico: Wrap) -> set[int]:
    """The servers that run for it."""
    return {pid for pid in descendants(portico.process.pid) if "badserver.py" in command_line(pid)}


@pytest.mark.parametrize(
    ("sharing", "one_pid", "asked_has_own"),
    [("auto", True, True), ("shared", True, False), ("per-client", False, True)],
)
def test_who_shares_a_child(
    tmp_path: Path, sharing: str, one_pid: bool, asked_has_own: bool
) -> None:
    with (
        Wrap(tmp_path, "--sharing", sharing, "--", *PLAIN) as portico,
        web(portico.port) as one,
        web(portico.port) as two,
    ):
        common = one.call("pid")
        assert (two.call("pid") == common) is one_pid
        for capability in ("sampling", "elicitation", "roots"):
            with web(portico.port, {capability: {}}) as able, web(portico.port, ELICITS) as other:
                pids = {client.call("pid") for client in (one, able, other)}
                assert len(pids) == (3 if asked_has_own else 1)
                assert able.call("pid") in pids


def test_a_question_on_a_shared_child_reaches_nobody_unless_one_client_alone_has_calls(
    tmp_path: Path,
) -> None:
    with (
        Wrap(tmp_path, "--sharing", "shared", "--", *PLAIN) as portico,
        web(portico.port, ELICITS, answers=PERSON) as one,
        web(portico.port, ELICITS, answers=PERSON) as two,
    ):
        running = busy(one)
        refused = json.loads(two.call("ask"))
        assert "several clients share this server" in refused["message"]
        assert not one.heard("elicitation/create")
        assert not two.heard("elicitation/create")
        cancel(one, running)
        assert json.loads(two.call("ask")) == PERSON["elicitation/create"]
        assert not one.heard("elicitation/create")
        assert len(two.heard("elicitation/create")) == 1


def test_a_shared_child_is_told_nobodys_roots(tmp_path: Path) -> None:
    folders = {"roots/list": {"roots": [{"uri": "file:///home"}]}}
    with (
        Wrap(tmp_path, "--sharing", "shared", "--", *PLAIN) as portico,
        web(portico.port, {"roots": {}}, answers=folders) as one,
    ):
        assert "refused" in json.loads(one.call("ask", kind="roots"))["message"]
        assert not one.heard("roots/list")


def test_log_lines_reach_the_one_whose_call_they_belong_to(tmp_path: Path) -> None:
    with (
        Wrap(tmp_path, "--", *PLAIN) as portico,
        web(portico.port) as one,
        web(portico.port) as two,
    ):
        assert one.call("pid") == two.call("pid")
        assert two.call("log") == "logged"
        assert len(two.heard("notifications/message")) == 8
        running = busy(one)
        assert two.call("log") == "logged"  # two calls run: the messages have no clear owner
        cancel(one, running)
        assert one.call("echo", text="later") == "later"
        assert not one.heard("notifications/message")
        assert len(two.heard("notifications/message")) == 8


def test_a_shared_child_logs_for_the_most_verbose_and_each_hears_what_it_asked_for(
    tmp_path: Path,
) -> None:
    hello = b'{"protocolVersion":"2025-11-25","capabilities":{"logging":{},"tools":{}},'
    lines = [b"initialize result " + hello + b'"serverInfo":{"name":"r","version":"1"}}']
    lines += [b'tools/list result {"tools":[]}', b"logging/setLevel result {}"]
    for level in (b"debug", b"info", b"error"):
        params = b'{"level":"%s","data":"x"}' % level
        lines.append(
            b'x/log before {"jsonrpc":"2.0","method":"notifications/message","params":%s}' % params
        )
    (tmp_path / "script").write_bytes(b"\n".join([*lines, b"x/log result {}"]))
    recording = tmp_path / "heard"
    with (
        Wrap(tmp_path, "--", *recorder("stdio", str(recording), f"{tmp_path}/script")) as portico,
        web(portico.port) as quiet,
        web(portico.port) as verbose,
    ):
        quiet.ask("logging/setLevel", {"level": "error"})
        verbose.ask("logging/setLevel", {"level": "info"})
        quiet.ask("logging/setLevel", {"level": "error"})
        for client in (quiet, verbose):
            client.ask("x/log", {})
        asked = [json.loads(raw) for raw in recorded(recording) if b"setLevel" in raw]
        assert asked[-1]["params"] == {"level": "info"}
        assert levels(quiet) == ["error"]
        assert levels(verbose) == ["info", "error"]


def levels(client: Client) -> list[str]:
    return [json.loads(raw)["level"] for raw in client.heard("notifications/message")]


def test_a_change_of_roots_reaches_the_clients_own_child_only(tmp_path: Path) -> None:
    changed = "notifications/roots/list_changed"
    with (
        Wrap(tmp_path, "--", *PLAIN) as portico,
        web(portico.port, {"roots": {"listChanged": True}}) as one,
        web(portico.port, {"roots": {"listChanged": True}}) as two,
        web(portico.port) as three,
    ):
        for client in (one, two, three):
            assert client.call("count", method=changed) == "0"
        one.notify(changed, b"{}")
        assert until(lambda: one.call("count", method=changed) == "1")
        assert [client.call("count", method=changed) for client in (two, three)] == ["0", "0"]


def test_a_client_that_leaves_takes_its_own_child_along(tmp_path: Path) -> None:
    with Wrap(tmp_path, "--", *PLAIN) as portico, web(portico.port) as one:
        common = int(one.call("pid"))
        with web(portico.port, ELICITS) as two:
            own = int(two.call("pid"))
            assert children(portico) == {common, own}
        assert until(lambda: not alive({own}))
        assert int(one.call("pid")) == common


def test_slow_calls_spread_over_so_many_instances(tmp_path: Path) -> None:
    with (
        Wrap(tmp_path, "--instances", "3", "--", *PLAIN) as portico,
        web(portico.port) as one,
        web(portico.port) as two,
    ):
        assert one.call("pid") == two.call("pid")
        assert len(children(portico)) == 1
        clients = [one, two, one, two, one]
        ids = [client.start("slow", ms=FOREVER_MS) for client in clients]
        assert until(lambda: len(children(portico)) == 3)
        for client, id in zip(clients, ids, strict=True):
            cancel(client, id)
        begin = [one.start("slow", ms=400) for _ in range(6)]
        assert [one.said(id) for id in begin] == ["slept 400 ms"] * 6
        assert len(children(portico)) == 3


# Starting and stopping.


@pytest.mark.slow
def test_an_idle_child_is_stopped_and_starts_again_for_the_next_call(tmp_path: Path) -> None:
    options = ("--sharing", "per-client", "--idle-timeout", "0.4")
    with (
        Wrap(tmp_path, *options, "--", *PLAIN) as portico,
        web(portico.port) as working,
        web(portico.port) as watching,
        web(portico.port) as idle,
    ):
        at_work = busy(working)
        watching.ask("resources/subscribe", NOTE)
        watched = int(watching.call("pid"))
        first = int(idle.call("pid"))
        assert len(children(portico)) == 3
        # The others have been at rest for longer when this one is stopped.
        assert until(lambda: not alive({first}))
        assert len(children(portico)) == 2
        assert watching.call("update") == "told"
        assert raw_member(watching.next("notifications/resources/updated"), "uri") == dumps(
            NOTE["uri"]
        )
        assert int(idle.call("pid")) != first
        assert at_work not in working.answers
        watching.ask("resources/unsubscribe", NOTE)
        assert until(lambda: not alive({watched}))
        cancel(working, at_work)
        assert until(lambda: not children(portico))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), {"PORTICO_TEST_WORD": "ours"}),
        (("--env", "PORTICO_TEST_WORD=given"), {"PORTICO_TEST_WORD": "given"}),
        (("--clean-env", "--env", "EXTRA=1"), {"PORTICO_TEST_WORD": None, "EXTRA": "1"}),
    ],
)
def test_the_environment_of_a_child(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    expected: dict[str, str | None],
) -> None:
    monkeypatch.setenv("PORTICO_TEST_WORD", "ours")
    with Pipes(tmp_path, *options, "--", *PLAIN) as client:
        client.hello()
        raw = Path(f"/proc/{client.call('pid')}/environ").read_bytes()
    pairs = (pair.partition(b"=")[::2] for pair in raw.split(b"\0") if pair)
    found = {os.fsdecode(name): os.fsdecode(value) for name, value in pairs}
    assert {name: found.get(name) for name in expected} == expected
    assert found["PATH"] == os.environ["PATH"]


# Cancelling and leaving.


def test_a_cancellation_travels_on_and_the_call_gets_no_answer(tmp_path: Path) -> None:
    with Pipes(tmp_path, "--", *PLAIN) as client:
        client.hello()
        id = busy(client)
        cancel(client, id)
        assert until(lambda: client.call("count", method="cancelled") == "1")
        assert id not in client.answers


def test_a_client_that_leaves_its_pipes_cancels_what_outlasts_the_drain(tmp_path: Path) -> None:
    recording = tmp_path / "heard"
    with Pipes(tmp_path, "--drain", "0.2", "--", *teed(recording, PLAIN)) as client:
        client.hello()
        busy(client)
    said = [
        json.loads(line[1:]) for line in recording.read_bytes().splitlines() if line[:1] == b">"
    ]
    [call] = [message for message in said if message["method"] == "tools/call"]
    [last] = [message for message in said if message["method"] == "notifications/cancelled"]
    assert last["params"]["requestId"] == call["id"]


def test_a_modern_client_that_hangs_up_cancels_its_call(tmp_path: Path) -> None:
    with (
        Wrap(tmp_path, "--", *PLAIN) as portico,
        web(portico.port, modern=True) as leaver,
        web(portico.port) as other,
    ):
        other.call("pid")
        leaver.hang_up(busy(leaver))
        assert until(lambda: other.call("count", method="cancelled") == "1")


@pytest.mark.slow
def test_an_answer_waits_for_a_legacy_client_that_lost_its_stream(tmp_path: Path) -> None:
    with Wrap(tmp_path, "--", *PLAIN) as portico, web(portico.port) as client:
        meta: dict[str, Any] = {"progressToken": "p"}
        id = client.start("slow", meta=meta, ms=1500, steps=3)
        client.next("notifications/progress")
        client.hang_up(id)
        last = client.events[id]
        client.resume(id, last)
        assert client.said(id) == "slept 1500 ms"
        steps = [json.loads(raw)["progress"] for raw in client.heard("notifications/progress")]
        assert steps == [1, 2, 3]
        assert client.call("count", method="cancelled") == "0"
