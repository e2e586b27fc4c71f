"""The example that redacts results: in memory, and in real processes."""

import json
from pathlib import Path
from typing import Any, Literal

import pytest

from examples.redact import links
from portico import Context, Handler, McpError, Request, Response, Server
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
    async with directory().test_client(era=era, links=links) as client:
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


async def passed(result: bytes, method: str = "tools/call", field: str = "result") -> bytes:
    """The bytes that a client gets of a server's result or error, behind the middleware."""

    response = Response(id=b"1", result=result)
    if field == "error":
        response = Response(id=b"1", error=result, code=1)

    def server(_: Handler) -> Handler:
        return lambda request, context: response

    request = Request(method=method, id=b"1", name="x", params=b'{"name":"x"}')
    answer = await directory().endpoint([*links, server]).handle(request, Context())
    return getattr(answer, field) or answer.error


@pytest.mark.parametrize(
    "text",
    [
        "two  spaces, 1.50 and a \\u00e9",
        "an @ alone, user@host, task_of_mine, @scope/package",
        "a" * 1_000_000,
        "a." * 500_000 + "@",
        r"{ \"n\" : 1.50 , \"big\" : 1e400 }",
    ],
    ids=lambda text: text[:20],
)
async def test_a_result_without_secrets_stays_the_same(text: str) -> None:
    raw = b'{ "content": [{"type": "text", "text": "%s"}], "n": 1.50 }' % text.encode()
    assert await passed(raw) == raw
    refusal = b'{ "code": 1, "message": "no" }'
    assert await passed(refusal, field="error") == refusal


async def test_the_state_of_a_call_is_not_changed() -> None:
    state = {"resultType": "input_required", "requestState": f"-{TOKEN}", "inputRequests": {}}
    raw = json.dumps(state).encode()
    assert await passed(raw) == raw


@pytest.mark.parametrize(
    "written",
    [
        r"\nana@example.com",
        r"ana\u0040example.com",
        r"\u0061na@example.com",
        r"{\"to\": \"\\u003cana@example.com\\u003e\"}",
        r"{\"to\": \"ana\\u0040example.com\", \"n\": 12345678901234567890.5}",
        r"[1, {\"ana@example.com\": 1e2}",
    ],
)
@pytest.mark.parametrize("method", ["tools/call", "prompts/get"])
async def test_escapes_hide_nothing_and_stay_whole(written: str, method: str) -> None:
    raw = b'{"content": [{"type": "text", "text": "%s"}]}' % written.encode()
    (block,) = json.loads(await passed(raw, method))["content"]
    assert "[e-mail]" in block["text"]
    assert "example.com" not in block["text"]
    if written[0] == "{":
        assert "[e-mail]" in json.loads(block["text"])["to"]


@pytest.mark.parametrize("method", ["tools/call", "resources/read", "prompts/get"])
@pytest.mark.parametrize(
    ("field", "doubled"),
    [
        ("result", b'{"content": ["ana@example.com"], "content": []}'),
        ("result", rb'{"content": ["ana@example.com"], "c\u006fntent": []}'),
        ("result", b'{"content": [{"text": "ana@example.com", "text": "no"}]}'),
        ("error", b'{"code": 1, "message": "ana@example.com", "message": "no"}'),
    ],
)
async def test_of_two_equal_keys_no_client_reads_the_other_one(
    field: str, doubled: bytes, method: str
) -> None:
    assert b"example.com" not in await passed(doubled, method, field)


@pytest.mark.parametrize("broken", [b'{"content": ["ana@example.com", 1e400]}', b'["a@b.com"]'])
async def test_a_result_that_cannot_be_read_is_not_passed_on(broken: bytes) -> None:
    answer = json.loads(await passed(broken))
    assert answer["code"] == -32603
    assert answer["message"].startswith("x sent an invalid result: ")


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
