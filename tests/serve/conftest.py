"""The fleet, started once for all tests that use it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serve.fleet import Fleet, fleet
from tests.serve.gateway import Gateway
from tests.serve.ways import ERAS, TRANSPORTS, Way
from tests.support.proxy import RecordingProxy
from tests.support.running import free_port
from tests.wrap.faults import until


@pytest.fixture(scope="session")
def ten(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Ten servers, none of them asked yet."""
    with fleet(tmp_path_factory.mktemp("fleet")) as ready:
        yield ready


@pytest.fixture(scope="session")
def proxy(ten: Fleet) -> Iterator[RecordingProxy]:
    """A gateway over HTTP that knows all ten, behind a proxy that holds all it says."""
    door = free_port()
    hosts = [f"--allow-host={name}:{door}" for name in ("localhost", "127.0.0.1")]
    with Gateway(ten.home, ten.config, "--auth", "token", *hosts) as gateway:
        known = ten.home / "cache" / "catalogs"
        assert until(lambda: known.exists() and len(list(known.iterdir())) >= len(ten.members)), (
            gateway.stderr()
        )
        with RecordingProxy(gateway, door) as listening:
            yield listening
    assert "Traceback" not in gateway.stderr()


@pytest.fixture(params=[(t, e) for t in TRANSPORTS for e in ERAS], ids="-".join)
def way(
    request: pytest.FixtureRequest, ten: Fleet, proxy: RecordingProxy, tmp_path: Path
) -> Iterator[Way]:
    """stdio and HTTP, each in both eras; whatever was said is valid by its schema."""
    transport, era = request.param
    chosen = Way(ten, transport, era, tmp_path)
    before = len(proxy.problems)
    if transport == "http":
        chosen.proxy = proxy
    yield chosen
    assert chosen.problems() == []
    assert proxy.problems[before:] == []
