"""One server keeps the gateway busy: calls to another go on nearly as before."""

import json
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest

from tests.rigs.running import HERE, bad, listening
from tests.serve.gateway import Gateway, command, written
from tests.serve.test_faults import Behind
from tests.support.running import Child
from tests.support.soak import times
from tests.wrap.faults import Wrap, until

pytestmark = [pytest.mark.slow, pytest.mark.soak, pytest.mark.xdist_group("serve-faults")]

QUIET_S, HOSTILE_S = 1.0, times(2, 20)
SLOWER = 4 * 2
"""The median may double; a busy machine gets four times that."""
LATEST_S, LATEST_S_PER_MB = 4 * 0.05, 4 * 0.01
"""Likewise for the slowest of a hundred."""

NAMED = "processing a message of rogue"


@contextmanager
def beside(folder: Path, over: str, **settings: Any) -> Iterator[tuple[Gateway, Behind]]:
    """A gateway with a hostile server, and a client of the healthy one beside it."""
    with ExitStack() as stack:
        rogue: dict[str, Any] = command(bad("stdio", "plain"))
        if over == "http":
            rogue = {"url": stack.enter_context(listening(bad("http", "plain")))}
        servers = {"well": command(bad("stdio", "plain")), "rogue": rogue}
        config = written(folder / "portico.toml", servers, gateway=settings)
        gateway = Gateway(folder / "home", config)
        stack.enter_context(gateway)
        well = stack.enter_context(Behind(gateway.port, "well"))
        assert until(well.works)
        yield gateway, well


@contextmanager
def active(gateway: Gateway, mode: str) -> Iterator[None]:
    """While the block runs, the hostile server is asked for this over and over."""
    with Behind(gateway.port, "rogue") as client:
        assert until(client.works)
        arguments = {"name": "rogue__bad", "arguments": {"mode": mode}}
        words = [str(gateway.port), json.dumps(client.headers), "execute_tool"]
        script = [sys.executable, "-I", "-S", str(HERE / "glutton.py")]
        glutton = Child([*script, *words, json.dumps(arguments)], PIPE)
        assert glutton.process.stdin is not None
        assert glutton.process.stdout is not None
        try:
            assert glutton.process.stdout.readline() == b"begun\n"
            yield
        finally:
            glutton.stop()
            glutton.process.stdin.close()
            glutton.process.stdout.close()


def waits(client: Behind, seconds: float) -> list[float]:
    """How long each call took, one after the other, for so long."""
    took: list[float] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.monotonic()
        assert client.works()
        took.append(time.monotonic() - began)
    return sorted(took)


@pytest.mark.parametrize("over", ["stdio", "http"])
@pytest.mark.parametrize(
    ("mode", "megabytes"),
    [("nested", 14), ("links", 9), ("batch", 14), ("chatter", 0), ("too-deep", 1)],
)
def test_a_hostile_server_does_not_slow_the_others(
    tmp_path: Path, record_property: Any, over: str, mode: str, megabytes: int
) -> None:
    with beside(tmp_path, over) as (gateway, well):
        quiet = waits(well, QUIET_S)
        with active(gateway, mode):
            hostile = waits(well, HOSTILE_S)
    assert hostile[len(hostile) // 2] < SLOWER * max(quiet[len(quiet) // 2], 0.001)
    latest = hostile[int(len(hostile) * 0.99)]
    assert latest < LATEST_S + LATEST_S_PER_MB * megabytes, f"{latest:.3f} s"
    record_property("soak", f"{len(hostile)} calls beside {mode} over {over}, none late")


def test_broken_messages_between_good_ones_end_the_server(tmp_path: Path) -> None:
    with beside(tmp_path, "stdio") as (gateway, _), Behind(gateway.port, "rogue") as rogue:
        assert until(rogue.works)
        assert "bytes of broken messages" in rogue.failed("garbage", "bad", mode="too-deep")
        assert until(rogue.works)


def test_the_log_names_the_server_that_keeps_everybody_waiting(tmp_path: Path) -> None:
    with (
        beside(tmp_path, "stdio", watchdog_ms=20) as (gateway, _),
        active(gateway, "nested"),
    ):
        assert until(lambda: NAMED in gateway.stderr())
        assert until(lambda: NAMED in logged(gateway))


def logged(gateway: Gateway) -> str:
    """All that its log has."""
    return (gateway.home / "state" / "logs" / "serve.log").read_text()


def test_wrap_names_it_too(tmp_path: Path) -> None:
    words = ("--watchdog-ms", "20", "--name", "rogue", "--", *bad("stdio", "nested"))
    with Wrap(tmp_path, *words) as wrap, wrap.client() as client:
        assert until(lambda: "result" in client.call("bad") and NAMED in wrap.stderr())
