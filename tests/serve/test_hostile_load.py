"""One server keeps the gateway busy: calls to another go on nearly as before."""

from pathlib import Path
from typing import Any

import pytest

from tests.rigs.running import bad
from tests.serve.gateway import Gateway
from tests.serve.hostile import active, beside, strain, waits
from tests.serve.test_faults import Behind
from tests.support.soak import each, times
from tests.wrap.faults import Wrap, until

pytestmark = [pytest.mark.slow, pytest.mark.soak, pytest.mark.xdist_group("serve-faults")]

QUIET_S, HOSTILE_S = times(1, 2) / 2, times(1, 20)
SLOWER = 4 * 2
"""The median may double; a busy machine gets four times that."""
LATEST_S, LATEST_S_PER_MB = 4 * 0.05, 4 * 0.01
"""Likewise for the slowest of a hundred."""

MEGABYTES = {"nested": 14, "links": 9, "batch": 14, "chatter": 0, "too-deep": 1}
"""The size of a hostile message of each kind."""
NAMED = "processing a message from rogue"


@pytest.mark.parametrize(("mode", "over"), each(list(MEGABYTES), ["stdio", "http"]))
def test_a_hostile_server_does_not_slow_the_others(
    tmp_path: Path, record_property: Any, over: str, mode: str
) -> None:
    with beside(tmp_path, over) as (gateway, well):
        quiet, before = waits(well, QUIET_S), strain()
        with active(gateway, "rogue__bad", mode=mode):
            hostile = waits(well, HOSTILE_S)
        busy = max(before, strain())
    median = hostile[len(hostile) // 2]
    assert median < busy * SLOWER * max(quiet[len(quiet) // 2], 0.001), f"{median:.3f} s"
    latest = hostile[int(len(hostile) * 0.99)]
    assert latest < busy * (LATEST_S + LATEST_S_PER_MB * MEGABYTES[mode]), f"{latest:.3f} s"
    record_property("soak", f"{len(hostile)} calls beside {mode} over {over}, none late")


def test_broken_messages_between_good_ones_end_the_server(tmp_path: Path) -> None:
    with beside(tmp_path, "stdio") as (gateway, _), Behind(gateway.port, "rogue") as rogue:
        assert until(rogue.works)
        assert "bytes of invalid messages" in rogue.failed("garbage", "bad", mode="too-deep")
        assert until(rogue.works)


def test_the_log_names_the_server_that_keeps_everybody_waiting(tmp_path: Path) -> None:
    with (
        beside(tmp_path, "stdio", watchdog_ms=20) as (gateway, _),
        active(gateway, "rogue__bad", mode="nested"),
    ):
        assert until(lambda: NAMED in gateway.stderr())
        assert until(lambda: NAMED in logged(gateway))


def logged(gateway: Gateway) -> str:
    """All that its log has, which is written a moment later."""
    log = gateway.home / "state" / "logs" / "serve.log"
    return log.read_text() if log.exists() else ""


def test_wrap_names_it_too(tmp_path: Path) -> None:
    words = ("--watchdog-ms", "20", "--name", "rogue", "--", *bad("stdio", "nested"))
    with Wrap(tmp_path, *words) as wrap, wrap.client() as client:
        assert "result" in client.call("bad")
        assert until(lambda: NAMED in wrap.stderr())
