"""The example whose tool calls two others, in real processes."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.examples.served import EACH_ERA, EACH_WAY, example, served

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("examples")]


@EACH_ERA
@EACH_WAY
def test_the_result_of_one_tool_becomes_an_argument_of_another(
    way: str, era: str, tmp_path: Path
) -> None:
    verb = way.split(maxsplit=1)[0]
    where = {"in_process": True} if verb == "serve" else {}
    pipe = {"pipe": {"path": example("pipe"), **where}}
    tool = "pipe__pipe" if verb == "serve" else "pipe"
    with served(way, tmp_path, components=pipe) as shop, shop.client(era) as client:
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
