"""The example whose tool calls two others, in real processes."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.examples.served import EACH_ERA, WAYS, Served, example, served

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("examples")]


@pytest.fixture(scope="module", params=WAYS)
def shop(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    where = {"in_process": True} if request.param.startswith("serve") else {}
    pipe = {"pipe": {"path": example("pipe"), **where}}
    with served(request.param, tmp_path_factory.mktemp("pipe"), components=pipe) as ready:
        yield ready


@EACH_ERA
def test_the_result_of_one_tool_becomes_an_argument_of_another(shop: Served, era: str) -> None:
    tool = "pipe__pipe" if shop.prefix else "pipe"
    with shop.client(era) as client:
        names: dict[str, Any] = {
            "source": shop.name("get-sum"),
            "target": shop.name("echo"),
            "into": "message",
        }
        said = client.call(tool, **names, source_arguments={"a": 2, "b": 3})
        assert said == "Echo: The sum of 2 and 3 is 5."
        failed = json.loads(client.result(client.start(tool, **names, source_arguments={"a": "x"})))
        assert failed["isError"] is True
        assert not failed["content"][0]["text"].startswith("Echo")
        missing = {**names, "target": shop.name("missing")}
        refused = client.error(client.start(tool, **missing, source_arguments={"a": 2, "b": 3}))
        assert json.loads(refused)["message"] == f"unknown tool: {shop.name('missing')}"
