"""The number of processes of a server: one, unless the config sets more."""

import asyncio
from pathlib import Path

import pytest

from tests.rigs.running import ledger
from tests.wrap.crowd import Served, speaking
from tests.wrap.standing import until


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("eras", [(False, True), (True, False)])
def test_clients_of_both_eras_share_the_one_process_of_a_legacy_server(
    eras: tuple[bool, ...], at_once: bool, tmp_path: Path
) -> None:
    served = Served(tmp_path / "home", "--", *ledger(tmp_path / "ledger"))

    async def call() -> None:
        async with speaking(served.port, 4, eras) as clients:
            for round in range(1, 4):
                calls = [client.called(round, "echo", "hello") for client in clients]
                if at_once:
                    answers = await asyncio.gather(*calls)
                else:
                    answers = [await call for call in calls]
                assert all("result" in answer for answer in answers), answers

    try:
        asyncio.run(call())
        until(lambda: len(served.upstreams("ledger.py")) == 1, "there are several")
    finally:
        served.stop()
