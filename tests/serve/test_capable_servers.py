"""Real servers that look at what their client can do, as they are behind `serve`."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.serve.test_asking import finished, said
from tests.serve.test_shared_until_asked import serving
from tests.support import node
from tests.wrap.talk import Pipes, web

ABLE: dict[str, Any] = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {},
    "roots": {"listChanged": True},
}
EVERYTHING = [str(node.node()), str(node.everything_server()), "stdio"]


def filesystem(folder: Path) -> list[str]:
    """The command line of the server for files, which reads roots as soon as it has started."""
    return [str(node.node()), str(node.server("filesystem")), str(folder)]


def test_tools_that_depend_on_the_client_are_listed(tmp_path: Path) -> None:
    answers: dict[str, dict[str, Any]] = {"roots/list": {"roots": []}}
    with Pipes(tmp_path / "alone", "--", *EVERYTHING, answers=answers) as direct:
        direct.hello(ABLE)
        alone = {tool["name"] for tool in json.loads(direct.ask("tools/list"))["tools"]}
    assert {"get-roots-list", "trigger-elicitation-request"} <= alone
    with serving(tmp_path, it=EVERYTHING) as portico, web(portico.port, ABLE) as client:
        listed = {tool["name"] for tool in json.loads(client.ask("tools/list"))["tools"]}
        assert {f"it__{name}" for name in alone} <= listed


@pytest.mark.parametrize("modern", [False, True], ids=["legacy", "modern"])
def test_a_server_that_reads_roots_has_them_before_its_first_call(
    tmp_path: Path, modern: bool
) -> None:
    given, opened = tmp_path / "given", tmp_path / "opened"
    given.mkdir()
    opened.mkdir()
    answers = {"roots/list": {"roots": [{"uri": opened.as_uri(), "name": "it"}]}}
    with serving(tmp_path, it=filesystem(given)) as portico:
        with web(portico.port, ABLE, answers=answers, modern=modern) as client:
            text = said(finished(client, "it__list_allowed_directories", ABLE, answers))
            assert str(opened) in text
            assert str(given) not in text
        with web(portico.port) as plain:
            assert str(given) in plain.call("it__list_allowed_directories")
