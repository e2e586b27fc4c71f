"""A modern client is notified of the changes that its own calls make at a legacy server."""

import contextlib
from pathlib import Path

import pytest
from mcp.client.subscriptions import ResourceUpdated

from tests.interop.person import Person, text_of
from tests.rigs.running import bad, listening
from tests.wrap.bridge import Bridge, over_stdio
from tests.wrap.wrapped import wrapped

NOTE = "test://note"


@pytest.mark.parametrize(
    ("door", "kind", "can_be_asked"),
    [
        ("stdio", "stdio", False),
        ("stdio", "stdio", True),
        ("stdio", "http", True),
        ("http", "stdio", False),
        # Over HTTP nothing says that the one who listens is the one who calls, so a client that
        # can be asked calls a process of its own and listens to the shared one.
    ],
)
async def test_changes_by_its_own_calls_are_heard(
    door: str, kind: str, can_be_asked: bool, tmp_path: Path
) -> None:
    options = Person().callbacks if can_be_asked else {}
    with contextlib.ExitStack() as stack:
        target = ["--", *bad("stdio", "plain")]
        if kind == "http":
            target = [stack.enter_context(listening(bad("http", "plain")))]
        if door == "stdio":
            bridge = over_stdio("modern", tmp_path, target)
        else:
            bridge = Bridge("modern", stack.enter_context(wrapped(target)))
        async with (
            bridge.connect(**options) as client,
            client.listen(resource_subscriptions=[NOTE]) as events,
        ):
            assert await text_of(client, "update", {}) == "told"
            assert await anext(events) == ResourceUpdated(uri=NOTE)
