"""A hostile server and a healthy one behind one gateway, and how long calls to the latter take."""

import json
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from subprocess import PIPE
from typing import Any

from tests.rigs.running import HERE, bad, listening
from tests.serve.gateway import Gateway, command, written
from tests.serve.test_faults import Behind
from tests.support.running import Child
from tests.wrap.faults import until


@contextmanager
def beside(
    folder: Path, over: str, mode: str = "plain", *words: str, **settings: Any
) -> Iterator[tuple[Gateway, Behind]]:
    """A gateway with a hostile server, and a client of the healthy one beside it."""
    with ExitStack() as stack:
        rogue: dict[str, Any] = command(bad("stdio", mode, *words))
        if over == "http":
            rogue = {"url": stack.enter_context(listening(bad("http", mode, *words)))}
        servers = {"well": command(bad("stdio", "plain")), "rogue": rogue}
        config = written(folder / "portico.toml", servers, gateway=settings)
        gateway = Gateway(folder / "home", config)
        stack.enter_context(gateway)
        well = stack.enter_context(Behind(gateway.port, "well"))
        assert until(well.works)
        yield gateway, well


@contextmanager
def active(gateway: Gateway, tool: str, **arguments: Any) -> Iterator[None]:
    """While the block runs, a client calls this over and over, and forgets what it gets."""
    with Behind(gateway.port, "rogue") as client:
        assert until(client.works)
        words = [str(gateway.port), json.dumps(client.headers), tool]
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


def strain() -> float:
    """How many times longer than alone anything takes now, because others use the machine too."""
    wall, cpu = time.monotonic(), time.thread_time()
    sum(range(5_000_000))
    return max(1.0, (time.monotonic() - wall) / (time.thread_time() - cpu))
