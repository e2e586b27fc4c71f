"""A component that changes on disk while it is served: replaced, or kept if it cannot be loaded."""

from pathlib import Path

import pytest

from tests.serve.components import CALC, Workshop
from tests.serve.gateway import Pipes, text_in
from tests.wrap.faults import until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("serve-component-reload")]

CHANGED = "notifications/tools/list_changed"
HELD = '''
import asyncio
from pathlib import Path

from portico import Server
from words import WORD

server = Server("held")


@server.tool
async def hold() -> str:
    """Wait for a file."""
    here = Path(__file__).parent
    (here / "held").touch()
    while not (here / "go").exists():
        await asyncio.sleep(0.01)
    return f"held {WORD}"


@server.tool
def say() -> str:
    """Say a word."""
    return WORD
'''
MORE = '''

@server.tool
def more() -> str:
    """Say more."""
    return "more"
'''


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    made = Workshop(tmp_path)
    made.file("calc.py", CALC)
    made.file("words.py", 'WORD = "first"\n')
    made.file("held.py", HELD)
    return made


def changes(gateway: Pipes) -> int:
    """How many times its list has changed since the last time that this was asked."""
    gateway.ask("ping")
    return [message.get("method") for message in gateway.received_before()].count(CHANGED)


@pytest.fixture(params=[False, True], ids=["own process", "in process"])
def gateway(request: pytest.FixtureRequest, workshop: Workshop) -> Pipes:
    held = {"path": "held.py", "in_process": request.param}
    workshop.write({"held": held, "calc": {"path": "calc.py"}})
    return Pipes(workshop.home, workshop.config)


def test_a_changed_file_replaces_its_component_and_calls_in_flight_finish(
    workshop: Workshop, gateway: Pipes
) -> None:
    with gateway:
        gateway.initialize()
        assert gateway.said("held__say") == "first"
        held = gateway.start("tools/call", {"name": "held__hold", "arguments": {}})
        assert until((workshop.folder / "held").exists)
        workshop.file("words.py", 'WORD = "changed"\n')
        workshop.file("held.py", HELD + MORE)
        assert until(lambda: "held__more" in gateway.tools())
        assert gateway.said("held__say") == "changed"
        (workshop.folder / "go").touch()
        assert text_in(gateway.answer_to(held)["result"]) == "held first"
    assert "held reloaded: its file has changed" in gateway.stderr()


def test_clients_are_notified_of_a_changed_list(workshop: Workshop, gateway: Pipes) -> None:
    with gateway:
        gateway.initialize()
        gateway.said("refresh_tools")
        workshop.file("held.py", HELD + MORE)
        assert until(lambda: "held__more" in gateway.tools())
        assert until(lambda: changes(gateway) > 0)


def test_a_file_that_cannot_be_loaded_is_reported_and_the_old_component_stays(
    workshop: Workshop, gateway: Pipes
) -> None:
    with gateway:
        gateway.initialize()
        assert gateway.said("held__say") == "first"
        workshop.file("held.py", "\n1 / 0\n")
        assert until(lambda: "held.py:2: ZeroDivisionError" in gateway.stderr())
        assert "held not reloaded:" in gateway.stderr()
        assert "not reloaded" in gateway.status()["held"]["error"]
        assert gateway.said("held__say") == "first"
        workshop.file("held.py", HELD + MORE)
        assert until(lambda: "held__more" in gateway.tools())
        assert not gateway.status()["held"]["error"]


def test_a_component_that_failed_is_loaded_when_its_file_is_right(
    workshop: Workshop, gateway: Pipes
) -> None:
    workshop.file("held.py", "1 / 0\n")
    with gateway:
        gateway.initialize()
        assert gateway.said("calc__add", a=2, b=3) == "5"
        assert until(lambda: "ZeroDivisionError" in gateway.status()["held"]["error"])
        (workshop.folder / "held.py").unlink()
        workshop.file("held.py", HELD)
        assert until(lambda: "held__say" in gateway.tools())
        assert gateway.said("held__say") == "first"


def test_a_file_that_was_missing_is_loaded_when_it_is_there(
    workshop: Workshop, gateway: Pipes
) -> None:
    (workshop.folder / "held.py").unlink()
    with gateway:
        gateway.initialize()
        assert "held.py: No such file" in gateway.status()["held"]["error"]
        workshop.file("held.py", HELD)
        assert until(lambda: "held__say" in gateway.tools())
