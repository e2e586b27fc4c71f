"""Notifications of clients: known ones reach the servers concerned, and nothing else does."""

from pathlib import Path

import pytest

from tests.rigs.running import bad
from tests.serve.gateway import Gateway, command, written
from tests.wrap.faults import Wrap, until
from tests.wrap.talk import Web, web

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("serve-client-notifications")]

ODD = "notifications/odd"
PROGRESS = b'{"progressToken":5,"progress":1}'


def times(client: Web, server: str, method: str) -> int:
    """How often a server has received a method."""
    return int(client.call(f"{server}__count", method=method))


def test_what_the_protocol_does_not_have_reaches_no_server(tmp_path: Path) -> None:
    servers = {name: command(bad("stdio", "plain")) for name in ("one", "two")}
    config = written(tmp_path / "portico.toml", servers, gateway={"expose": "all"})
    with Gateway(tmp_path / "home", config) as gateway, web(gateway.port) as client:
        for name in servers:
            assert times(client, name, ODD) == 0
        client.notify(ODD, b'{"a":1}')
        client.notify("notifications/progress", PROGRESS)
        client.notify("resources/read", b'{"uri":"note://1"}')  # a request without an id
        for name in servers:
            for method in (ODD, "notifications/progress", "resources/read"):
                assert times(client, name, method) == 0


def test_wrap_passes_notifications_but_no_request_without_an_id(tmp_path: Path) -> None:
    with Wrap(tmp_path / "home", "--", *bad("stdio", "plain")) as wrap, web(wrap.port) as client:
        assert client.call("count", method=ODD) == "0"
        client.notify(ODD, b'{"a":1}')
        client.notify("resources/read", b'{"uri":"note://1"}')
        assert until(lambda: client.call("count", method=ODD) == "1")
        assert client.call("count", method="resources/read") == "0"
