"""Servers that never finish their tasks, forget them, restart, or have several processes."""

import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.rigs.running import tasks
from tests.serve.gateway import Gateway, command, written
from tests.support.pairs import pairs
from tests.support.running import REDACTING, WAIT_S, HttpServer, http_server
from tests.support.shared import ROOT
from tests.tasks_protocol.doors import ANSWERS, ERAS, tasks_server
from tests.tasks_protocol.follower import ABLE, ACCEPT, FollowingWeb
from tests.tasks_protocol.gated import Gated
from tests.wrap.faults import portico_command, until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("tasks-faulty-servers")]

RIG = ROOT / "tests" / "rigs" / "tasks_server.py"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway before a server of each era for each fault."""
    folder = tmp_path_factory.mktemp("faulty")
    servers = {"mute": command(tasks("modern"), era="modern", may_ask=False)}
    for era in ERAS:
        servers |= {
            f"endless-{era}": command(tasks(era), era=era),
            f"forgetful-{era}": command(tasks(era), era=era, sharing="shared"),
            f"idle-{era}": command(tasks_server(), era=era, timeouts={"idle": 0.3}),
            f"four-{era}": command(tasks_server(), era=era, instances=4),
            f"own-{era}": command(tasks_server(), era=era, sharing="per-client"),
        }
    config = written(folder / "portico.toml", servers, gateway={"expose": "all"})
    with Gateway(folder / "home", config) as running:
        yield running


@pytest.fixture(scope="module")
def upstream() -> Iterator[HttpServer]:
    """A server at a URL, which goes on when a gateway ends."""
    with http_server(RIG) as running:
        yield running


@contextmanager
def connected(gateway: Gateway, era: str, prefix: str = "rig__") -> Iterator[FollowingWeb]:
    """A client of a gateway; whatever it receives is valid."""
    with FollowingWeb(gateway.port, answers=ANSWERS, modern=era == "modern") as client:
        client.prefix = prefix
        if era == "legacy":
            client.hello(ABLE)
        yield client
        assert client.oracle.problems == []


def config(folder: Path, entry: dict[str, Any]) -> Path:
    """A config with one server."""
    return written(folder / "portico.toml", {"rig": entry}, gateway={"expose": "all"})


@pytest.mark.parametrize("server", ERAS)
def test_a_task_that_its_server_never_finishes_fails_when_its_time_has_passed(
    gateway: Gateway, server: str
) -> None:
    name = f"endless-{server}"
    with connected(gateway, "modern", f"{name}__") as client:
        id = client.begin("work", ms=600_000, keep=1_000)
        outcome = client.outcome(id)
        assert outcome["status"] == "failed"
        reason = f"{name} did not finish the task within its ttl of 1 s"
        assert reason in outcome["error"]["message"]
        assert outcome["error"]["data"] == {"kind": "timeout", "server": name}
        assert client.task(id)["error"] == outcome["error"]


def test_the_task_of_a_server_that_may_not_ask_fails_with_its_first_question(
    gateway: Gateway,
) -> None:
    with connected(gateway, "modern", "mute__") as client:
        outcome = client.outcome(client.called("work", asks=True)["result"]["taskId"])
        assert outcome["status"] == "failed"
        assert "mute may not ask clients" in outcome["error"]["message"]
        assert outcome["error"]["data"] == {"kind": "question", "server": "mute"}


@pytest.mark.parametrize("client_era", ERAS)
@pytest.mark.parametrize("server", ERAS)
def test_a_task_that_its_server_has_forgotten_fails_with_that_reason(
    gateway: Gateway, server: str, client_era: str
) -> None:
    name = f"forgetful-{server}"
    with connected(gateway, client_era, f"{name}__") as client:
        forgotten, restarted = client.begin("work", ms=600_000), client.begin("work", ms=600_000)
        assert client.call(f"{name}__forget") == "forgotten"
        assert "does not know its task any more" in client.outcome(forgotten)["error"]["message"]
        assert client.outcome(restarted)["status"] == "failed"
        id = client.begin("work", ms=600_000)
        os.kill(int(client.call(f"{name}__pid")), signal.SIGKILL)
        assert client.outcome(id)["error"]["data"] == {"kind": "forgotten", "server": name}


@pytest.mark.parametrize("server", ERAS)
def test_a_process_is_not_idle_while_a_task_of_a_client_that_left_is_open(
    gateway: Gateway, server: str
) -> None:
    with connected(gateway, "modern", f"idle-{server}__") as client:
        id = client.begin("slow_compute", seconds=2, label="long")
    with connected(gateway, "modern") as client:
        outcome = client.outcome(id)
        assert outcome["result"]["content"][0]["text"] == "computed long in 2.0 s"


@pytest.mark.soak
@pytest.mark.parametrize(("processes", "server", "client_era"), pairs(["four", "own"], ERAS, ERAS))
def test_a_task_is_followed_at_the_process_that_has_it(
    gateway: Gateway, server: str, client_era: str, processes: str
) -> None:
    with connected(gateway, client_era, f"{processes}-{server}__") as client:
        begun: list[str] = []

        def begin(number: int) -> None:
            begun.append(client.begin("slow_compute", seconds=0.3, label=str(number)))

        threads = [threading.Thread(target=begin, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        outcomes = [client.outcome(id) for id in begun]
        texts = {one["result"]["content"][0]["text"] for one in outcomes}
        assert texts == {f"computed {number} in 0.3 s" for number in range(8)}
        if processes == "four":
            asking = [client.begin("ask_twice", label=f"{number}") for number in range(4)]
            for id in asking:
                client.fetch("tasks/cancel", {"taskId": id})
                client.reached(id, "cancelled")


@pytest.mark.parametrize("client_era", ERAS)
@pytest.mark.parametrize("server", ERAS)
def test_each_of_four_processes_answers_for_the_task_that_it_has(
    tmp_path: Path, server: str, client_era: str
) -> None:
    gated, begin = Gated(tmp_path, server, instances=4), tmp_path / "begin"
    silent = {"extensions": ABLE["extensions"]}  # with questions it would have its own process
    with gated.gateway() as gateway, gated.client(gateway, client_era, silent) as client:
        call = client.call_of("work", {"gate": str(gated.gate), "begin": str(begin)})
        if not client.modern:
            call["task"] = {}
        sent = []
        for number in range(1, 5):  # each process is busy with its call when the next is sent
            sent.append(client.request("tools/call", call))
            assert until(lambda: len(gated.received("tools/call")) == number)  # noqa: B023
        begin.touch()
        results = [json.loads(client.result(id)) for id in sent]
        begun = [(one if client.modern else one["task"])["taskId"] for one in results]
        processes = [one["pid"] for one in gated.received("tools/call")]
        assert len(set(processes)) == 4
        assert [client.task(id)["status"] for id in begun] == ["working"] * 4
        gated.gate.touch()
        outcomes = [client.outcome(id) for id in begun]
        texts = [one["result"]["content"][0]["text"] for one in outcomes]
        assert texts == [f"done by {pid}" for pid in processes]


@pytest.mark.parametrize("server", ERAS)
@pytest.mark.parametrize("client_era", ERAS)
def test_the_task_of_a_url_is_followed_again_after_a_restart_of_portico(
    upstream: HttpServer, tmp_path: Path, client_era: str, server: str
) -> None:
    path = config(tmp_path, {"url": upstream.url, "era": server})
    with Gateway(tmp_path / "home", path) as gateway, connected(gateway, client_era) as client:
        id = client.begin("slow_compute", seconds=1.5, label="kept")
    with Gateway(tmp_path / "home", path) as gateway, connected(gateway, client_era) as client:
        outcome = client.outcome(id)
        assert outcome["result"]["content"][0]["text"] == "computed kept in 1.5 s"


@pytest.mark.parametrize("server", ERAS)
@pytest.mark.parametrize("client_era", ERAS)
def test_the_task_of_a_url_that_the_next_gateway_follows_passes_its_links(
    upstream: HttpServer, tmp_path: Path, client_era: str, server: str
) -> None:
    home, secret = tmp_path / "home", "ana@example.com"
    path = config(tmp_path, {"url": upstream.url, "era": server})
    with Gateway(home, path, by=REDACTING) as gateway, connected(gateway, client_era) as client:
        id = client.begin("confirm_delete", filename=secret)
        client.reached(id, "input_required")
    with Gateway(home, path, by=REDACTING) as gateway, connected(gateway, client_era) as client:
        client.reached(id, "input_required")
        if client.modern:
            client.update(id, dict.fromkeys(client.questions(id, 1), ACCEPT))
        outcome = client.outcome(id)
        assert outcome["result"]["content"][0]["text"] == "deleted [e-mail]"
        status = {"name": "task_status", "arguments": {"task_id": id}}
        shown = client.fetch("tools/call", status)
        assert secret not in json.dumps([outcome, shown])
    kept = json.loads(printed(portico_command(home, "tasks", "show", id, "--json")))
    assert secret not in json.dumps(kept["result"])
    assert "[e-mail]" in printed(portico_command(home, "tasks", "wait", id))


@pytest.mark.parametrize("server", ERAS)
@pytest.mark.parametrize("client_era", ERAS)
def test_a_resumed_task_of_a_url_calls_again_once_also_if_portico_restarts(
    upstream: HttpServer, tmp_path: Path, client_era: str, server: str
) -> None:
    path, home = config(tmp_path, {"url": upstream.url, "era": server}), tmp_path / "home"
    with Gateway(home, path) as gateway, connected(gateway, client_era) as client:
        first = client.begin("ask_twice", label=f"{client_era} {server}")
        client.reached(first, "input_required")
        client.fetch("tasks/cancel", {"taskId": first})
        client.reached(first, "cancelled")
        words = ["tasks", "resume", first, "--json"]
        new = json.loads(printed(portico_command(home, *words)))["id"]
        client.reached(new, "input_required")
    with Gateway(home, path) as gateway, connected(gateway, client_era) as client:
        client.reached(new, "input_required")
        if client.modern:
            for _ in range(2):
                client.answer_next(new, ACCEPT)
        outcome = client.outcome(new)
        assert outcome["result"]["content"][0]["text"] == "accept accept, run 2"
        assert client.task(first)["status"] == "cancelled"


def printed(words: list[str]) -> str:
    """The output of a command, which must succeed."""
    done = subprocess.run(words, capture_output=True, text=True, timeout=WAIT_S, check=True)
    return done.stdout
