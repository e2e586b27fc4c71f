"""A gateway in front of the server whose tasks end when a file exists, and the server's ledger."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from portico.core.model.context import LOCAL
from portico.library.tasks.store.record import TaskRecord
from portico.library.tasks.store.store import TaskStore, tasks_in_folder
from tests.serve.gateway import Gateway, command, written
from tests.serve.owners import owner_in
from tests.support.running import WAIT_S
from tests.support.shared import ROOT
from tests.support.task_runners import seen
from tests.tasks_protocol.doors import ANSWERS
from tests.tasks_protocol.follower import ABLE, FollowingPipes, FollowingWeb

SERVER = ROOT / "tests" / "tasks_protocol" / "servers" / "gated.py"
KEY = "portico/idempotencyKey"
T = TypeVar("T")


class Gated:
    """A config with the server as `rig`, its ledger, its gate, and the store of its tasks."""

    def __init__(self, folder: Path, era: str, **more: Any) -> None:
        """`more` is of the server's entry, `gateway` and `tasks` of their tables."""
        self.home = folder / "home"
        self.gate = folder / "gate"
        self._ledger = folder / "ledger"
        tables = {
            "gateway": {"expose": "all", **more.pop("gateway", {})},
            "tasks": {"lease_s": 1, **more.pop("tasks", {})},
        }
        self.words = [sys.executable, "-I", "-S", str(SERVER), era, str(self._ledger)]
        """The command line of the server."""
        servers = {"rig": command(self.words, era=era, **more)}
        self.config = written(folder / "portico.toml", servers, **tables)

    def gateway(self) -> Gateway:
        """The gateway over HTTP."""
        return Gateway(self.home, self.config)

    @contextmanager
    def client(
        self, gateway: Gateway, era: str, able: dict[str, Any] = ABLE
    ) -> Iterator[FollowingWeb]:
        """A client over HTTP; whatever it receives is valid."""
        with FollowingWeb(gateway.port, answers=ANSWERS, modern=era == "modern") as client:
            yield from _greeted(client, able)

    @contextmanager
    def window(self, era: str, able: dict[str, Any] = ABLE) -> Iterator[FollowingPipes]:
        """A window, which starts the owner or finds it; whatever it receives is valid."""
        portico = [sys.executable, "-m", "portico", "serve", "--config", str(self.config)]
        words = ["env", f"PORTICO_HOME={self.home}", *portico]
        modern = era == "modern"
        with FollowingPipes(self.home, words=words, answers=ANSWERS, modern=modern) as client:
            yield from _greeted(client, able)

    def owner(self) -> int:
        """The process that has the gateway of the windows."""
        return owner_in(self.home / "state")

    def received(self, method: str, tool: str = "") -> list[dict[str, Any]]:
        """The params of the messages of a method that the server has received, in order."""
        text = self._ledger.read_text() if self._ledger.exists() else ""
        found = [json.loads(line) for line in text.splitlines()]
        return [
            {**one["params"], "pid": one["pid"]}
            for one in found
            if one["method"] == method and tool in ("", one["params"].get("name"))
        ]

    def keys(self, tool: str) -> list[str | None]:
        """The idempotency keys of the calls of a tool."""
        return [one.get("_meta", {}).get(KEY) for one in self.received("tools/call", tool)]

    def record(self, id: str) -> TaskRecord:
        """A task as it is stored."""
        return self.when(id, lambda _: True)

    def when(self, id: str, is_so: Callable[[TaskRecord], object]) -> TaskRecord:
        """Wait until a task is as expected."""
        return self.stored(lambda store: seen(store, id, is_so))

    def ended(self, id: str) -> TaskRecord:
        """Wait until a task has ended."""
        return self.when(id, lambda task: task.is_finished)

    def resumed(self, id: str) -> str:
        """Resume a task; the id of the new one."""
        task = self.stored(lambda store: store.resume(LOCAL, id))
        assert task is not None
        return task.id

    def cancelled(self, id: str) -> None:
        """Cancel a task, and wait for its end."""
        assert self.stored(lambda store: store.cancel(LOCAL, id)) is not None
        assert self.ended(id).state == "cancelled"

    def stored(self, operation: Callable[[TaskStore], Awaitable[T]]) -> T:
        """The outcome of an operation on the store, from a process that is not the gateway."""

        async def run() -> T:
            store = tasks_in_folder(str(self.home / "state"))
            try:
                return await operation(store)
            finally:
                await store.close()

        return asyncio.run(run())

    def command(self, *words: str) -> str:
        """The output of a command, which must succeed."""
        done = subprocess.run(
            [sys.executable, "-m", "portico", *words],
            env={**os.environ, "PORTICO_HOME": str(self.home), "COLUMNS": "200"},
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


C = TypeVar("C", FollowingWeb, FollowingPipes)


def _greeted(client: C, able: dict[str, Any]) -> Iterator[C]:
    client.able, client.prefix = able, "rig__"
    if not client.modern:
        client.hello(able)
    yield client
    assert client.oracle.problems == []
