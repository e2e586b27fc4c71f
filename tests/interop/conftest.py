"""Ways for real clients to reach a real server, with every message of it held by an oracle."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.interop.doors import Doors
from tests.interop.sdk import FEW_WAYS, Way
from tests.support.proxy import RecordingProxy, recorded_http_server
from tests.support.running import EVERYTHING, FEATURES

if TYPE_CHECKING:
    from tests.support.websocket import SocketProxy


@pytest.fixture(scope="module")
def features_over_http() -> Iterator[RecordingProxy]:
    with recorded_http_server(FEATURES) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def features_over_websocket() -> Iterator["SocketProxy"]:
    from tests.support.websocket import recorded_websocket_server

    with recorded_websocket_server(FEATURES) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def everything_over_websocket() -> Iterator["SocketProxy"]:
    from tests.support.websocket import recorded_websocket_server

    with recorded_websocket_server(EVERYTHING) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def everything_over_http() -> Iterator[RecordingProxy]:
    with recorded_http_server(EVERYTHING) as proxy:
        yield proxy


@pytest.fixture
def features(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Doors]:
    """The server with one of everything that a client can use."""
    doors = _doors(request, FEATURES, "features", tmp_path)
    yield doors
    _all_valid(doors)


@pytest.fixture
def everything(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Doors]:
    """The example that the conformance suite judges."""
    doors = _doors(request, EVERYTHING, "everything", tmp_path)
    yield doors
    _all_valid(doors)


def _doors(request: pytest.FixtureRequest, component: Path, name: str, folder: Path) -> Doors:
    return Doors(
        component,
        lambda: request.getfixturevalue(f"{name}_over_http"),
        lambda: request.getfixturevalue(f"{name}_over_websocket"),
        folder,
    )


def _all_valid(doors: Doors) -> None:
    checked, problems = doors.verdict()
    assert problems == []
    assert checked >= 2, "a conversation has at least an opening and an answer"


@pytest.fixture(
    params=[
        pytest.param(way, marks=[pytest.mark.soak] if way[0] == "stdio" else []) for way in FEW_WAYS
    ],
    ids="-".join,
)
def way(request: pytest.FixtureRequest, features: Doors, monkeypatch: pytest.MonkeyPatch) -> Way:
    """Each transport at each version, as the official SDK speaks them."""
    transport, version = request.param
    return Way(features, transport, version, monkeypatch)
