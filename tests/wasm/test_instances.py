"""How long an instance of a component lives: for one call, or for the session of one client."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.serve.components import Workshop
from tests.serve.gateway import Gateway
from tests.wasm.hosting import attacking_guest, home
from tests.wrap.faults import until
from tests.wrap.talk import Client, web

pytestmark = pytest.mark.slow


@contextmanager
def serving(folder: Path, instance: str) -> Iterator[Gateway]:
    shutil.copy(attacking_guest(), folder / "guest.wasm")
    entry = {"path": "guest.wasm", "instance": instance}
    config = Workshop(folder).write({"guest": entry})
    with Gateway(home(folder), config) as gateway:
        assert until(lambda: all(one["tools"] for one in gateway.status().values()))
        yield gateway


def count(client: Client) -> str:
    """Count one more in the guest; what it has counted so far."""
    called = json.loads(client.ask("tools/call", {"name": "guest__count", "arguments": {}}))
    return str(called["content"][0]["text"])


def test_each_session_has_an_instance_of_its_own(tmp_path: Path) -> None:
    with (
        serving(tmp_path, "session") as gateway,
        web(gateway.port) as one,
        web(gateway.port) as two,
    ):
        assert [count(one), count(one), count(two)] == ["1", "2", "1"]
        assert [count(one), count(two)] == ["3", "2"]


def test_calls_with_instances_of_their_own_share_nothing(tmp_path: Path) -> None:
    with (
        serving(tmp_path, "call") as gateway,
        web(gateway.port) as one,
        web(gateway.port) as two,
    ):
        assert [count(one), count(one), count(two)] == ["1", "1", "1"]
