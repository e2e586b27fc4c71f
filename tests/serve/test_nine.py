"""One server of ten misbehaves, in every way there is, while nine real ones serve on."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.rigs.running import bad
from tests.serve.fleet import Call, Fleet
from tests.serve.gateway import Gateway, command, result_of, written
from tests.support.running import WAIT_S
from tests.wrap.faults import Client

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("fleet")]

MODES = ("killed", "garbage", "huge", "bad-utf8", "wrong-id", "storm", "silent")
LEFT_OUT = "thinking"


@pytest.fixture(scope="module")
def gateway(ten: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """Nine real servers, and one that does as it is told."""
    folder = tmp_path_factory.mktemp("nine")
    entries = {name: of.entry for name, of in ten.members.items() if name != LEFT_OUT}
    entries["rogue"] = command(bad("stdio", "plain"), timeouts={"call": 10})
    assert len(entries) == 10
    with Gateway(folder / "home", written(folder / "portico.toml", entries)) as running:
        with running.client() as client:
            client.call("refresh_tools")
        yield running


def executed(client: Client, server: str, call: Call, **more: Any) -> dict[str, Any]:
    """The result of a server's tool, through `execute_tool`."""
    tool, arguments = call
    asked = {"name": f"{server}__{tool}", "arguments": arguments, **more}
    return result_of(client.call("execute_tool", **asked))


@contextmanager
def misbehaving(gateway: Gateway, mode: str) -> Iterator[None]:
    """While the block runs, the tenth is called all the time, and does this; each call ends."""
    over = threading.Event()
    answers: list[dict[str, Any]] = []

    def call() -> None:
        with gateway.client() as client:
            while not answers or not over.is_set():
                answers.append(executed(client, "rogue", ("bad", {"mode": mode}), timeout_s=0.5))

    caller = threading.Thread(target=call)
    caller.start()
    try:
        yield
    finally:
        over.set()
        caller.join(WAIT_S)
    assert answers


@pytest.mark.parametrize("mode", MODES)
def test_nine_serve_on_whatever_the_tenth_does(gateway: Gateway, ten: Fleet, mode: str) -> None:
    calls = {name: of.calls[0] for name, of in ten.members.items() if name != LEFT_OUT}
    with gateway.client() as client:
        before = {name: executed(client, name, call) for name, call in calls.items()}
        with misbehaving(gateway, mode):
            for name, call in calls.items():
                assert executed(client, name, call) == before[name], name
        status = gateway.status()
    assert [name for name in calls if status[name]["error"]] == []
