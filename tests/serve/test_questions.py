"""Questions of servers: under the asker's name among many, unchanged at its own door."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tests.rigs.running import questions
from tests.rigs.wire import dumps
from tests.serve.gateway import Gateway, command, written
from tests.support.messages import PREFIX
from tests.wrap.faults import Wrap
from tests.wrap.talk import Client, Web, web

ABLE: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}, "sampling": {}}
META = {PREFIX + "clientCapabilities": ABLE}
FORM = {"mode": "form", "message": "Your name?", "requestedSchema": {"type": "object"}}
PAGE = {"mode": "url", "url": "https://x.example", "elicitationId": "1", "message": "Log in"}
PROMPT = {"role": "user", "content": {"type": "text", "text": "hi"}}
SAMPLE = {"messages": [PROMPT], "maxTokens": 5, "systemPrompt": "Be kind."}
ANSWER = {"action": "accept", "content": {"name": "Ada"}}
ANSWERS = {"elicitation/create": ANSWER, "sampling/createMessage": {"model": "m"}}
SERVERS = ("legacy", "modern")
MERGED = ("/mcp", "/groups/all/mcp")


@pytest.fixture(scope="module")
def gateway(by: Sequence[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    home = tmp_path_factory.mktemp("serve")
    servers = {name: command(questions(name), era=name) for name in SERVERS}
    servers |= {
        f"mute-{name}": command(questions(name), era=name, may_ask=False) for name in SERVERS
    }
    config = written(
        home / "portico.toml", servers, groups={"all": list(servers)}, gateway={"expose": "all"}
    )
    with Gateway(home, config, by=by) as gateway:
        yield gateway


def talking(gateway: Wrap, modern: bool, path: str = "/mcp") -> Any:
    able = None if modern else ABLE
    return web(gateway.port, able, path=path, modern=modern, answers=ANSWERS)


def asked(
    client: Client, tool: str, method: str, params: dict[str, Any], execute: bool = False
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The question as its client gets it, and what came of it in the end."""
    given: dict[str, Any] = {"method": method, "params": params}
    if execute:
        tool, given = "execute_tool", {"name": tool, "arguments": given}
    call: dict[str, Any] = {"name": tool, "arguments": given}
    if not client.modern:
        result = json.loads(client.ask("tools/call", call))
        got = json.loads(client.heard(method)[-1])
    else:
        result = json.loads(client.ask("tools/call", {**call, "_meta": META}))
        ((key, question),) = result["inputRequests"].items()
        assert question["method"] == method
        got = question["params"]
        more: dict[str, Any] = {"inputResponses": {key: ANSWERS[method]}, "_meta": META}
        if "requestState" in result:
            more["requestState"] = result["requestState"]
        result = json.loads(client.ask("tools/call", {**call, **more}))
    answer: dict[str, Any] = json.loads(result["content"][0]["text"])
    return got, answer


@pytest.mark.parametrize("path", MERGED)
@pytest.mark.parametrize("modern", [False, True])
@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("execute", [False, True])
def test_a_question_names_the_server_that_asks(
    gateway: Gateway, path: str, modern: bool, server: str, execute: bool
) -> None:
    with talking(gateway, modern, path) as client:
        for params in (FORM, PAGE):
            got, answer = asked(client, f"{server}__ask", "elicitation/create", params, execute)
            assert got["message"] == f"[{server}] {params['message']}"
            assert got["_meta"] == {"portico/server": server}
            assert got.get("url") == params.get("url")
            assert answer == ANSWER
        wide = {**SAMPLE, "includeContext": "allServers"}
        got, answer = asked(client, f"{server}__ask", "sampling/createMessage", wide, execute)
        assert got["systemPrompt"] == f"[{server}] Be kind."
        assert got["includeContext"] == "thisServer"
        assert got["messages"] == [PROMPT]
        assert answer == {"model": "m"}


@pytest.mark.parametrize("modern", [False, True])
@pytest.mark.parametrize("server", SERVERS)
def test_no_line_of_a_question_can_pass_for_another_servers(
    gateway: Gateway, modern: bool, server: str
) -> None:
    sly = "Hello\n[github] Your password?\u2028[bank] PIN?\r\x1b[2K[mail]\u202e\u200b"
    with talking(gateway, modern) as client:
        form = {**FORM, "message": sly}
        got, _ = asked(client, f"{server}__ask", "elicitation/create", form)
    lines = got["message"].split("\n")
    assert all(line.startswith(f"[{server}] ") for line in lines)
    assert len(lines) == 4
    assert got["message"].replace("\n", "").isprintable()


def test_pages_to_visit_name_the_server(gateway: Gateway) -> None:
    with talking(gateway, modern=False) as client:
        error = json.loads(client.error(client.start("legacy__pages")))
        assert error["code"] == -32042
        assert error["data"]["elicitations"][0]["message"] == "[legacy] Log in"


@pytest.mark.faithful
@pytest.mark.parametrize("server", SERVERS)
def test_a_servers_own_door_passes_questions_unchanged(gateway: Gateway, server: str) -> None:
    modern = server == "modern"
    with talking(gateway, modern, f"/servers/{server}/mcp") as client:
        _check_unchanged(client)


@pytest.mark.faithful
@pytest.mark.parametrize("server", SERVERS)
def test_wrap_passes_questions_unchanged(
    tmp_path_factory: Any, server: str, by: Sequence[str]
) -> None:
    home = tmp_path_factory.mktemp("wrap")
    with (
        Wrap(home, "--", *questions(server), by=by) as portico,
        talking(portico, server == "modern") as client,
    ):
        _check_unchanged(client)


def _check_unchanged(client: Web) -> None:
    wide = {**SAMPLE, "includeContext": "allServers"}
    for method, params in (("elicitation/create", PAGE), ("sampling/createMessage", wide)):
        asked(client, "ask", method, params)
        sent = [raw for raw in (*client.told, *client.answers.values()) if method.encode() in raw]
        assert any(dumps(params) in raw.replace(b'", "', b'","') for raw in sent)


@pytest.mark.parametrize("path", [*MERGED, "/servers/mute-legacy/mcp"])
@pytest.mark.parametrize("modern", [False, True])
def test_a_server_that_may_not_ask_is_told_so_and_its_call_goes_on(
    gateway: Gateway, path: str, modern: bool
) -> None:
    tool = "ask" if path.startswith("/servers") else "mute-legacy__ask"
    given = {"method": "elicitation/create", "params": FORM}
    with talking(gateway, modern, path) as client:
        call: dict[str, Any] = {"name": tool, "arguments": given}
        if modern:
            call["_meta"] = META
        result = json.loads(client.ask("tools/call", call))
        refusal = json.loads(result["content"][0]["text"])
        assert "mute-legacy may not ask clients" in refusal["message"]
        assert not client.heard("elicitation/create")


def test_a_modern_server_that_may_not_ask_gets_no_answer(gateway: Gateway) -> None:
    given = {"method": "elicitation/create", "params": FORM}
    with talking(gateway, modern=True) as client:
        call = {"name": "mute-modern__ask", "arguments": given, "_meta": META}
        error = client.error(client.request("tools/call", call))
        assert b"may not ask clients" in error
    with talking(gateway, modern=False) as client:
        assert json.loads(client.call("mute-modern__ask", **given)) == {"action": "cancel"}
        assert not client.heard("elicitation/create")
