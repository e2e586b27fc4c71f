"""Every guard that people copy decides on values: no spelling of JSON passes or changes them."""

import json
from pathlib import Path
from typing import Any

import pytest

from examples import call_log
from examples.rate_limit import TOO_MANY_CALLS, limited
from portico import Context, Handler, Link, Request, Server, Version, hooks
from portico.core.protocol.inbound import read
from tests.docs.pages import blocks

GUARDED = ("README.md", "docs/write/components.md")
SECRET = "private keys stay on this machine"


def hooks_of(page: str, marker: str) -> Link:
    """The middleware of a page: the hooks in its block with these words."""
    python = [block.text for block in blocks(page) if block.language == "python"]
    (text,) = (one for one in python if marker in one and "def on_call" in one)
    found: dict[str, Any] = {}
    exec(text.partition("\nasync with ")[0], found)
    return hooks(on_call=found["on_call"], on_result=found.get("on_result"))


class Door:
    """A server whose only tool returns its arguments, and the params that reach it."""

    def __init__(self, link: Link) -> None:
        server = Server("echo")
        server.add_tool({"name": "echo", "inputSchema": {"type": "object"}}, json.dumps)
        self.seen: list[bytes] = []
        self._endpoint = server.endpoint([link, self._record])

    def _record(self, next: Handler) -> Handler:
        def handle(request: Request, context: Context) -> Any:
            self.seen.append(request.params)
            return next(request, context)

        return handle

    async def call(self, arguments: str, name: str = '"echo"') -> dict[str, Any]:
        """The response to a call whose arguments and name are JSON as a client writes it."""
        params = f'{{"name":{name},"arguments":{arguments}}}'
        body = f'{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}'
        request = read(body.encode(), Version.V2025_11_25, {})
        assert isinstance(request, Request)
        return (await self._endpoint.handle(request, Context())).decode()


def first_arguments(params: bytes) -> Any:
    return json.loads(params, object_pairs_hook=lambda pairs: dict(reversed(pairs)))["arguments"]


@pytest.mark.parametrize("page", GUARDED)
@pytest.mark.parametrize(
    "arguments",
    [
        '{"city": "PRIVATE KEY"}',
        r'{"city": "PRIVATE\u0020KEY"}',
        r'{"city": "\u0050RIVATE KEY"}',
        r'{"c\u0069ty": ["\u0050\u0052IVATE KEY"]}',
        '{"city": "Oslo", "city": "PRIVATE KEY"}',
        r'{"city": "Oslo", "c\u0069ty": "PRIVATE KEY"}',
        '{"n": 1E+2, "PRIVATE KEY": -0.0}',
    ],
)
async def test_the_guard_of_a_page_refuses_every_spelling(page: str, arguments: str) -> None:
    door = Door(hooks_of(page, "PRIVATE KEY"))
    answer = await door.call(arguments)
    assert answer["result"]["content"][0]["text"] == SECRET
    assert door.seen == []


@pytest.mark.parametrize("page", GUARDED)
@pytest.mark.parametrize(
    "arguments",
    [
        '{"city": "PRIVATE KEY", "city": "Oslo"}',
        r'{"city": "PRIVATE KEY", "c\u0069ty": "Oslo"}',
        '{"in": {"city": "PRIVATE KEY", "city": 1e2}}',
    ],
)
async def test_a_server_reads_no_key_that_a_guard_did_not_see(page: str, arguments: str) -> None:
    door = Door(hooks_of(page, "PRIVATE KEY"))
    await door.call(arguments)
    assert b"PRIVATE" not in door.seen[0]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (r'{"city": "\u0041tlantis"}', "there is no weather below the sea"),
        ('{"city": "Oslo", "city": "Atlantis"}', "there is no weather below the sea"),
        (r'{"city": "Christi\u0061nia"}', '{"city": "Oslo"} Have a nice day.'),
        ('{"city": "Atlantis", "city": "Oslo"}', '{"city": "Oslo"} Have a nice day.'),
        ('{"n": 1E2, "big": 12345678901234567890}', None),
    ],
)
async def test_the_hooks_of_the_chain_decide_on_values(arguments: str, text: str | None) -> None:
    door = Door(hooks_of("docs/write/chain.md", "Atlantis"))
    answer = await door.call(arguments)
    given = json.dumps(json.loads(arguments)) + " Have a nice day."
    assert answer["result"]["content"][0]["text"] == (text or given)
    for params in door.seen:
        assert first_arguments(params) == json.loads(params)["arguments"]


NAMES = ('"echo"', r'"\u0065cho"', '"none","name":"echo"')


async def test_a_limit_counts_a_tool_however_its_name_is_spelled() -> None:
    door = Door(hooks(on_call=limited({"e*": 2})))
    answers = [await door.call("{}", name) for name in NAMES]
    assert ["error" in answer for answer in answers] == [False, False, True]
    assert answers[2]["error"]["code"] == TOO_MANY_CALLS


@pytest.mark.parametrize("name", NAMES)
async def test_a_log_names_the_tool_that_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_log, "LOG", tmp_path / "calls.jsonl")
    answer = await Door(hooks(on_call=call_log.on_call)).call('{"a":1E2}', name)
    assert answer["result"]["content"][0]["text"] == '{"a": 100.0}'
    assert json.loads((tmp_path / "calls.jsonl").read_text())["tool"] == "echo"
