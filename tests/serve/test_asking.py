"""Questions, roots and log messages of Python servers of both eras, in `serve`.

Such a server asks in the middle of a call in the legacy era only, and in the result of a call in
the modern era only. Both work for clients of both eras.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.rigs.running import asking, listening
from tests.serve.gateway import Gateway, command, serve_command, written
from tests.support.messages import PREFIX
from tests.wrap.talk import Client, Pipes, web

LIBRARIES = ("mcp", "fastmcp")
WAYS = ("stdio", "http")
ABLE: dict[str, Any] = {"elicitation": {"form": {}}, "sampling": {}, "roots": {"listChanged": True}}
NAMED = {"action": "accept", "content": {"name": "Ada"}}
ANSWERS: dict[str, dict[str, Any]] = {
    "elicitation/create": NAMED,
    "sampling/createMessage": {
        "role": "assistant",
        "model": "m",
        "content": {"type": "text", "text": "a word"},
    },
    "roots/list": {"roots": [{"uri": "file:///home/ada"}]},
}
RESULTS = {
    "ask": "accept Ada",
    "ask_in_result": "accept Ada",
    "sample": "a word",
    "roots": "file:///home/ada",
}


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    home = tmp_path_factory.mktemp("asking")
    with (
        listening(asking("mcp", "--http")) as mcp,
        listening(asking("fastmcp", "--http")) as fastmcp,
    ):
        servers: dict[str, Any] = {f"{name}-stdio": command(asking(name)) for name in LIBRARIES}
        servers |= {"mcp-http": {"url": mcp}, "fastmcp-http": {"url": fastmcp}}
        yield written(home / "portico.toml", servers, gateway={"expose": "all"})


@pytest.fixture(scope="module")
def gateway(config: Path) -> Iterator[Gateway]:
    with Gateway(config.parent, config) as gateway:
        yield gateway


def finished(
    client: Client,
    tool: str,
    able: dict[str, Any] = ABLE,
    answers: dict[str, dict[str, Any]] = ANSWERS,
    **meta: Any,
) -> dict[str, Any]:
    """The answer to a call once all questions are answered, in the way of the client's era."""
    call: dict[str, Any] = {"name": tool, "arguments": {}, "_meta": meta}
    if client.modern:
        call["_meta"] = {PREFIX + "clientCapabilities": able, **meta}
    answer: dict[str, Any] = json.loads(client.answer(client.request("tools/call", call)))
    rounds = 0
    while client.modern and answer.get("result", {}).get("resultType") == "input_required":
        assert rounds < 3
        rounds += 1
        result = answer["result"]
        given = {k: answers[q["method"]] for k, q in result["inputRequests"].items()}
        more: dict[str, Any] = {"inputResponses": given}
        if "requestState" in result:
            more["requestState"] = result["requestState"]
        answer = json.loads(client.answer(client.request("tools/call", {**call, **more})))
    return answer


def said(answer: dict[str, Any]) -> str:
    assert "result" in answer, answer
    text: str = answer["result"]["content"][0]["text"]
    return text


@pytest.mark.parametrize("modern", [False, True], ids=["legacy", "modern"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_server_of_both_eras_can_ask_a_client_of_either(
    gateway: Gateway, library: str, way: str, modern: bool
) -> None:
    with web(gateway.port, ABLE, modern=modern, answers=ANSWERS) as client:
        for tool, expected in RESULTS.items():
            assert said(finished(client, f"{library}-{way}__{tool}")) == expected, tool
            # The second time, Portico knows how it asks.
            assert said(finished(client, f"{library}-{way}__{tool}")) == expected, tool


@pytest.mark.parametrize("modern", [False, True], ids=["legacy", "modern"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("able", [ABLE, {}], ids=["askable", "plain"])
def test_a_client_gets_log_messages_and_progress(
    gateway: Gateway, library: str, way: str, modern: bool, able: dict[str, Any]
) -> None:
    with web(gateway.port, able, modern=modern, answers=ANSWERS) as client:
        meta: dict[str, Any] = {"progressToken": "there"}
        if modern:
            meta[PREFIX + "logLevel"] = "info"
        assert said(finished(client, f"{library}-{way}__log", able, **meta)) == "done"
        (logged,) = client.heard("notifications/message")
        assert b"half" in logged
        (progress,) = client.heard("notifications/progress")
        assert json.loads(progress)["progressToken"] == "there"


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_window_on_pipes_is_asked(config: Path, tmp_path: Path, library: str) -> None:
    words = serve_command(tmp_path, config)
    with Pipes(tmp_path, words=words, answers=ANSWERS) as client:
        client.hello(ABLE)
        for tool, expected in RESULTS.items():
            assert said(finished(client, f"{library}-stdio__{tool}")) == expected, tool


@pytest.mark.parametrize("modern", [False, True], ids=["legacy", "modern"])
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_client_that_cannot_be_asked_gets_the_servers_refusal(
    gateway: Gateway, library: str, modern: bool
) -> None:
    with web(gateway.port, {}, modern=modern) as client:
        for tool in ("ask", "sample", "roots"):
            answer = finished(client, f"{library}-stdio__{tool}", {})
            assert "error" in answer or answer["result"]["isError"], tool
        assert not any(client.heard(method) for method in ANSWERS)
