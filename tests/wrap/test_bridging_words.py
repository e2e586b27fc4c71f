"""Features that the two eras express differently: pages to visit, and log levels."""

import sys
from pathlib import Path

import mcp_types as types
import pytest

from tests.interop.person import Person, text_of
from tests.interop.sdk import code_of, raw
from tests.support.running import FEATURES, portico_run
from tests.wrap.bridge import OTHER, Bridge, over_stdio

pytestmark = pytest.mark.slow

PAGES = [sys.executable, str(Path(__file__).parent / "servers" / "pages.py")]


@pytest.fixture(params=OTHER)
def bridge(request: pytest.FixtureRequest, tmp_path: Path) -> Bridge:
    """A client of each era, and a server that is spoken to in the other."""
    era = request.param
    return over_stdio(era, tmp_path, ["--", *portico_run(FEATURES)], "--era", OTHER[era])


async def test_a_page_to_visit_is_shown_to_the_person(bridge: Bridge) -> None:
    person = Person()
    async with bridge.connect(elicitation_callback=person.elicited) as client:
        assert await text_of(client, "ask_visit") == "accept"
    (page,) = person.asked
    assert (page.message, page.url) == ("Please sign in", "https://example.com/in")


async def test_an_error_that_names_a_page_is_a_question_to_a_modern_client(tmp_path: Path) -> None:
    person = Person()
    bridge = over_stdio("modern", tmp_path, ["--", *PAGES], "--era", "legacy")
    async with bridge.connect(elicitation_callback=person.elicited) as client:
        assert await text_of(client, "files", {}) == "two files"
    (page,) = person.asked
    assert (page.message, page.url) == ("Please sign in", "https://example.com/in")


async def test_a_client_that_can_open_no_page_is_told_what_it_lacks(tmp_path: Path) -> None:
    bridge = over_stdio("modern", tmp_path, ["--", *PAGES], "--era", "legacy")
    async with bridge.connect() as client:
        assert await code_of(client.call_tool("files", {})) == -32021


async def test_the_server_is_told_how_much_to_log(bridge: Bridge) -> None:
    heard: list[str] = []

    async def on_log(params: types.LoggingMessageNotificationParams) -> None:
        heard.append(params.level)

    # By default the server sends no messages below `info`.
    async with bridge.connect(logging_callback=on_log, log_level="debug") as client:
        if not bridge.modern:
            await raw(client.session, "logging/setLevel", level="debug")
        await client.call_tool("chatter")
    assert heard == ["debug", "info", "warning", "error"]
