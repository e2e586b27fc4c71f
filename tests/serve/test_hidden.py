"""Hidden characters at every door of `serve`, and through `wrap`, which changes no byte."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from portico.core.catalog.sanitize import has_invisible
from tests.rigs.running import scripted
from tests.serve.gateway import Gateway, command, result_of, text_in, written
from tests.wrap.faults import Client
from tests.wrap.standing import Standing

_BAD = "Adds\u200b numbers\U000e0041\u202e. \u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"
_SHOWN = (
    "Adds\\u{200b} numbers\\u{e0041}\\u{202e}. \u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"
)
_VALUE = "fast\u200b"
_SCRIPT = {
    "instructions": _BAD,
    "info": {"title": _BAD},
    "tools": [
        {
            "name": "add",
            "title": _BAD,
            "description": _BAD,
            "annotations": {"title": _BAD},
            "inputSchema": {
                "type": "object",
                "properties": {"mode": {"enum": [_VALUE], "description": _BAD}},
            },
        }
    ],
    "prompts": [{"name": "ask", "arguments": [{"name": _VALUE, "description": _BAD}]}],
    "resources": [{"uri": "x:y", "name": _BAD, "description": _BAD}],
    "templates": [{"uriTemplate": "x:{y}", "name": _BAD, "title": _BAD}],
}


class _At(Client):
    """A client at another door."""

    def __init__(self, port: int, path: str) -> None:
        self.path = path
        super().__init__(port)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("hidden")
    file = folder / "script.json"
    file.write_text(json.dumps(_SCRIPT))
    config = written(folder / "p.toml", {"odd": command(scripted(file))}, groups={"some": ["odd"]})
    with Gateway(folder / "home", config, "--expose", "all") as running:
        with running.client() as client:
            client.call("refresh_tools")
        yield running


def _lists(client: Client) -> dict[str, Any]:
    return {
        kind: result_of(client.ask(f"{kind}/list"))
        for kind in ("tools", "prompts", "resources", "resources/templates")
    }


@pytest.mark.parametrize("path", ["/mcp", "/groups/some/mcp", "/servers/odd/mcp"])
def test_texts_are_written_out_and_values_are_not(gateway: Gateway, path: str) -> None:
    with _At(gateway.port, path) as client:
        lists = _lists(client)
        hello = json.dumps(client.hello, ensure_ascii=False)
        tool = lists["tools"]["tools"][-1]
        assert (tool["title"], tool["description"]) == (_SHOWN, _SHOWN)
        assert tool["annotations"] == {"title": _SHOWN}
        mode = tool["inputSchema"]["properties"]["mode"]
        assert mode == {"enum": [_VALUE], "description": _SHOWN}
        assert tool["_meta"].pop("portico/hidden") is True
        assert not {*tool["_meta"]} - {"anthropic/searchHint"}  # ours, at the endpoints of several
        argument = lists["prompts"]["prompts"][0]["arguments"][0]
        assert argument == {"name": _VALUE, "description": _SHOWN}
        assert lists["resources"]["resources"][0]["name"] == _SHOWN
        assert lists["resources/templates"]["resourceTemplates"][0]["title"] == _SHOWN
        assert not has_invisible(hello)
        if path.startswith("/servers"):
            assert client.hello["result"]["instructions"] == _SHOWN
            assert client.hello["result"]["serverInfo"]["title"] == _SHOWN
        called = text_in(result_of(client.call(tool["name"], mode=_VALUE)))
        assert json.loads(called)["arguments"] == {"mode": _VALUE}


def test_what_a_search_finds_shows_them_and_can_be_called(gateway: Gateway) -> None:
    with gateway.client() as client:
        found = result_of(client.call("search_tools", query="add numbers"))
        full = result_of(client.call("describe_tool", name="odd__add"))
        for result in (found, full):
            assert not has_invisible(text_in(result))
            assert "hidden characters" in text_in(result)
        definition = full["structuredContent"]["tools"][0]["definition"]
        assert definition["description"] == _SHOWN
        assert definition["inputSchema"]["properties"]["mode"]["enum"] == [_VALUE]
        # What a model copies out of the text is the value itself.
        assert '"enum":["fast\\u200b"]' in text_in(full)
        called = client.call("execute_tool", name="odd__add", arguments={"mode": _VALUE})
        assert json.loads(text_in(result_of(called)))["arguments"] == {"mode": _VALUE}
        wrong = result_of(client.call("execute_tool", name="odd__add", arguments={"mode": "x"}))
        assert wrong["isError"]
        assert not has_invisible(text_in(wrong))


def test_they_are_reported(gateway: Gateway) -> None:
    warnings = gateway.status()["odd"]["warnings"]
    assert warnings == [
        "odd: hidden characters in tool add; those in values sent back to the server are unchanged",
        "odd: hidden characters in resource x:y; they are shown escaped",
        "odd: hidden characters in template x:{y}; they are shown escaped",
        "odd: hidden characters in prompt ask; those in values sent back to the server are "
        "unchanged",
        "odd: hidden characters in instructions; they are shown escaped",
    ]
    for warning in warnings:
        assert gateway.stderr().count(f"portico: {warning}\n") == 1


def test_wrap_changes_no_byte(tmp_path: Path) -> None:
    file = tmp_path / "script.json"
    file.write_text(json.dumps(_SCRIPT))
    with Standing(tmp_path / "home", "--", *scripted(file)) as wrap:
        hello = wrap.initialize()
        assert hello["result"]["instructions"] == _BAD
        assert wrap.ask("tools/list")["result"]["tools"] == _SCRIPT["tools"]
        assert wrap.ask("prompts/list")["result"]["prompts"] == _SCRIPT["prompts"]
        assert wrap.ask("resources/list")["result"]["resources"] == _SCRIPT["resources"]
