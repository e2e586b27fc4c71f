"""The start of a real agent, cold and from the pool."""

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.delegating import AgentGateway, DelegatingPipe
from bench.process import Workspace
from bench.report import Section, Table
from bench.rounds import Samples
from bench.scale import Scale
from bench.workload import ROOT, WrongAnswer
from tests.agents.delegation.qwen import qwen_table
from tests.support.model_server import ModelServer, Script, model_server, says

_AGENT = ROOT / ".agents" / "node_modules" / "@qwen-code" / "qwen-code" / "cli.js"
_COLD, _WARM = "Qwen Code, cold", "Qwen Code, warm"
_START, _FIRST, _TURN = "until it is ready s", "to its first update s", "whole turn s"
_COLUMNS = {_START: "start_s", _FIRST: "first_update_s", _TURN: "turn_s"}
_SCRIPT: Script = {"greet": [says("Hello.")]}
_PATIENCE_S = 10.0
_ABOUT = (
    "The real agent has a scripted model on loopback, which answers at once. Warm: its process "
    "was started and initialized before the prompt. Until it is ready: the session exists.",
)


def measure(scale: Scale, section: Section, samples: Samples) -> None:
    """Delegate to the real agent, each time cold and then warm."""
    if not _AGENT.is_file():
        section.notes.append("the real agent is left out: `make agents` installs it")
        return
    section.notes += _ABOUT
    try:
        for _ in range(scale.rounds):
            _round(samples)
    except WrongAnswer as wrong:
        section.notes.append(f"the real agent was not measured to the end: {wrong}")
    rows = [
        [name, *(samples.cell(name, column, "{:.2f}".format) for column in _COLUMNS)]
        for name in (_COLD, _WARM)
    ]
    section.tables.append(Table("Start of a real agent", ("", *_COLUMNS), rows))


def _round(samples: Samples) -> None:
    with _model() as model, Workspace() as workspace:
        agent = {**qwen_table(workspace.path / "agent", model), "pool": {"max": 1}}
        gateway = AgentGateway(workspace, "real agent", [agent]).start()
        with gateway.process:
            gateway.open()
            _add(samples, _COLD, gateway)
            gateway.until_warm(1)
            _add(samples, _WARM, gateway)
            gateway.until_warm(1)
            everyone = gateway.process.everyone()
        _until_gone(everyone)


def _until_gone(pids: Sequence[int]) -> None:
    """The agent takes some seconds to end, and writes to its folder meanwhile."""
    until = time.monotonic() + _PATIENCE_S
    while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < until:
        time.sleep(0.05)


def _add(samples: Samples, name: str, gateway: DelegatingPipe) -> None:
    timings = gateway.delegate("greet the user")["timings"]
    if bool(timings.get("is_warm")) != (name == _WARM):
        raise WrongAnswer(f"{name}: {timings}")
    for column, part in _COLUMNS.items():
        samples.add(name, column, timings[part])


@contextmanager
def _model() -> Iterator[ModelServer]:
    """A model server in a thread of its own."""
    loop, started, found = asyncio.new_event_loop(), threading.Event(), list[ModelServer]()
    over = asyncio.Event()

    async def serve() -> None:
        async with model_server(_SCRIPT) as model:
            found.append(model)
            started.set()
            await over.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    try:
        if not started.wait(_PATIENCE_S):
            raise WrongAnswer("the model server did not start")
        yield found[0]
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
        loop.close()
