"""The lifespan of a component in a real gateway: in its own process, and in the gateway's."""

from pathlib import Path

import pytest

from tests.serve.components import CALC, Workshop
from tests.serve.gateway import Pipes
from tests.wrap.faults import until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("serve-component-lifespan")]

LIVED = '''
import asyncio
from contextlib import asynccontextmanager
from pathlib import Path

from portico import Context, Server

HERE = Path(__file__).parent
WORD = "first"


def note(event):
    with open(HERE / "diary", "a") as diary:
        print(event, WORD, file=diary)


@asynccontextmanager
async def lifespan(server):
    if (HERE / "down").exists():
        raise ConnectionError("no database")
    note("start")
    yield f"value of {WORD}"
    note("close")


server = Server("lived", lifespan=lifespan)


@server.tool
async def value(context: Context) -> str:
    """Show the value."""
    return context.lifespan


@server.tool
async def hold(context: Context) -> str:
    """Show the value when a file is there."""
    (HERE / "held").touch()
    while not (HERE / "go").exists():
        await asyncio.sleep(0.01)
    note("use")
    return context.lifespan
'''


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    made = Workshop(tmp_path)
    made.file("lived.py", LIVED)
    made.file("calc.py", CALC)
    return made


@pytest.fixture(params=[False, True], ids=["own process", "in process"])
def gateway(request: pytest.FixtureRequest, workshop: Workshop) -> Pipes:
    lived = {"path": "lived.py", "in_process": request.param}
    workshop.write({"lived": lived, "calc": {"path": "calc.py"}})
    return Pipes(workshop.home, workshop.config)


def diary(workshop: Workshop) -> list[str]:
    file = workshop.folder / "diary"
    return file.read_text().splitlines() if file.exists() else []


def test_it_is_started_for_the_first_call_and_closed_with_the_gateway(
    workshop: Workshop, gateway: Pipes
) -> None:
    with gateway:
        gateway.initialize()
        assert gateway.said("lived__value") == "value of first"
        assert gateway.said("lived__value") == "value of first"
    assert until(lambda: "close first" in diary(workshop))
    events = diary(workshop)
    assert events.count("start first") == events.count("close first")
    assert events[-1] == "close first"


def test_a_start_that_fails_is_the_error_of_a_call_and_affects_no_other(
    workshop: Workshop, gateway: Pipes
) -> None:
    down = workshop.file("down", "")
    with gateway:
        gateway.initialize()
        assert gateway.said("calc__add", a=1, b=2) == "3"
        params = {"name": "lived__value", "arguments": {}}
        assert "no database" in str(gateway.ask("tools/call", params))
        down.unlink()
        assert until(lambda: gateway.ask("tools/call", params).get("result", {}).get("content"))


def test_a_changed_file_closes_the_old_one_after_its_calls(
    workshop: Workshop, gateway: Pipes
) -> None:
    with gateway:
        gateway.initialize()
        assert gateway.said("lived__value") == "value of first"
        held = gateway.start("tools/call", {"name": "lived__hold", "arguments": {}})
        assert until((workshop.folder / "held").exists)
        workshop.file("lived.py", LIVED.replace('WORD = "first"', 'WORD = "later"'))
        assert until(lambda: gateway.said("lived__value") == "value of later")
        workshop.file("go", "")
        text = gateway.answer_to(held)["result"]["content"][0]["text"]
        assert text == "value of first"
        assert until(lambda: "close first" in diary(workshop))
        assert diary(workshop).index("use first") < diary(workshop).index("close first")
