"""The example that redacts results: in memory, and in real processes."""

import json
from pathlib import Path
from typing import Any, Literal

import pytest

from examples.redact import link, redact
from portico import McpError, Response, Server
from tests.examples.served import EACH_ERA, EACH_WAY, served

TOKEN = "ghp_" + "x" * 36  # as long as a real one


def directory() -> Server:
    server = Server("directory")

    @server.tool
    async def person(name: str) -> dict[str, Any]:
        """Find a person."""
        if name == "nobody":
            raise McpError("ask root@example.com", code=-31000, data={"key": TOKEN})
        return {"mail": f"{name}@example.com", "by key": {TOKEN: 1}, "list": [f"a {TOKEN}."]}

    @server.resource("people://all")
    async def people() -> str:
        """All people."""
        return "Ana <ana.b+c@mail.example.com>, tel. 5"

    @server.prompt
    async def greet() -> str:
        """A greeting."""
        return "Write to ana@example.com."

    return server


@EACH_ERA
async def test_addresses_and_tokens_are_removed(era: Literal["modern", "legacy"]) -> None:
    async with directory().test_client(era=era, links=[link]) as client:
        found = await client.call_tool("person", {"name": "ana"})
        clean = {"mail": "[e-mail]", "by key": {"[token]": 1}, "list": ["a [token]."]}
        assert found.structured == clean
        assert json.loads(found.text) == clean
        (contents,) = await client.read_resource("people://all")
        assert contents.body == "Ana <[e-mail]>, tel. 5"
        assert (await client.get_prompt("greet")).text == "Write to [e-mail]."
        with pytest.raises(McpError, match=r"ask \[e-mail\]") as error:
            await client.call_tool("person", {"name": "nobody"})
        assert (error.value.code, error.value.data) == (-31000, {"key": "[token]"})


@pytest.mark.parametrize(
    "text",
    [
        "two  spaces, 1.50 and a \\u00e9",
        "an @ alone, user@host, task_of_mine, @scope/package",
        "a" * 1_000_000,
        "a." * 500_000 + "@",
    ],
    ids=lambda text: text[:20],
)
def test_a_response_without_secrets_stays_the_same(text: str) -> None:
    raw = b'{ "content": [{"type": "text", "text": "%s"}], "n": 1.50 }' % text.encode()
    response = Response(id=b"1", result=raw)
    assert redact(response) is response
    refusal = Response(id=b"1", error=b'{ "code": 1, "message": "no" }', code=1)
    assert redact(refusal) is refusal


def test_the_state_of_a_call_is_not_changed() -> None:
    state = {"resultType": "input_required", "requestState": f"-{TOKEN}", "inputRequests": {}}
    response = Response(id=b"1", result=json.dumps(state).encode())
    assert redact(response) is response


@pytest.mark.parametrize("escaped", [r"\nana@example.com", r"ana\u0040example.com"])
def test_escapes_hide_nothing_and_stay_whole(escaped: str) -> None:
    raw = b'{"content": [{"type": "text", "text": "%s"}]}' % escaped.encode()
    clean = redact(Response(id=b"1", result=raw)).decode()["result"]["content"][0]["text"]
    assert clean.strip() == "[e-mail]"


@pytest.mark.slow
@pytest.mark.xdist_group("examples")
@EACH_WAY
def test_results_are_redacted_in_front_of_any_server(way: str, tmp_path: Path) -> None:
    with served(way, tmp_path, "redact") as shop:
        for era in ("legacy", "modern"):
            with shop.client(era) as client:
                said = client.call(shop.name("echo"), message=f"I am ana@example.com, {TOKEN}")
                assert said == "Echo: I am [e-mail], [token]"
                assert client.call(shop.name("echo"), message="I am Ana") == "Echo: I am Ana"
