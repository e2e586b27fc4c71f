"""A server of this very program, beside real ones: everything it offers, by every way."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.rigs.running import bad
from tests.serve.gateway import Gateway, command, written
from tests.support.messages import PREFIX
from tests.support.shared import ROOT
from tests.wrap.faults import portico_command
from tests.wrap.talk import Client, Pipes, web

BY = (str(ROOT / "tests" / "rigs" / "member.py"),)
ABLE: dict[str, Any] = {"elicitation": {}}
META = {PREFIX + "clientCapabilities": ABLE}
ANSWER = {"action": "accept", "content": {"name": "Ada"}}
ANSWERS = {"elicitation/create": ANSWER}


@pytest.fixture(scope="module", params=["search", "all"])
def expose(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def config(expose: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("member")
    servers = {"plain": command(bad("stdio", "plain"))}
    return written(home / "portico.toml", servers, gateway={"expose": expose})


@pytest.fixture(scope="module")
def gateway(config: Path) -> Iterator[Gateway]:
    with Gateway(config.parent, config, by=BY) as gateway:
        yield gateway


@pytest.fixture(params=[("stdio", False), ("stdio", True), ("http", False), ("http", True)])
def client(
    request: pytest.FixtureRequest, gateway: Gateway, config: Path, tmp_path: Path
) -> Iterator[Client]:
    over, modern = request.param
    if over == "http":
        able = None if modern else ABLE
        with web(gateway.port, able, modern=modern, answers=ANSWERS) as found:
            yield found
        return
    words = portico_command(tmp_path, "serve", "--config", str(config), by=BY)
    with Pipes(tmp_path, words=words, modern=modern, answers=ANSWERS) as found:
        if not modern:
            found.hello(ABLE)
        yield found


def asked(client: Client, method: str, **params: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(client.ask(method, params))
    return found


def use(client: Client, expose: str, tool: str, /, **more: Any) -> dict[str, Any]:
    """Call a tool in the way that its gateway shows, with more params beside its arguments."""
    arguments = more.pop("arguments", {})
    if expose == "search":
        tool, arguments = "execute_tool", {"name": tool, "arguments": arguments}
    return asked(client, "tools/call", name=tool, arguments=arguments, **more)


def text(result: dict[str, Any]) -> str:
    return str(result["content"][0]["text"])


def test_its_tools_stand_beside_those_of_others(client: Client, expose: str) -> None:
    assert text(use(client, expose, "notes__add", arguments={"a": 2, "b": 3})) == "5"
    assert text(use(client, expose, "plain__echo", arguments={"text": "hi"})) == "hi"
    wrong = use(client, expose, "notes__add", arguments={"a": "two", "b": 3})
    assert wrong["isError"]
    assert "a: expected integer" in text(wrong)


def test_its_tools_are_shown_as_all_others_are(client: Client, expose: str) -> None:
    names = [tool["name"] for tool in asked(client, "tools/list")["tools"]]
    if expose == "all":
        assert {"notes__add", "plain__echo"} <= set(names)
        return
    assert "search_tools" in names
    found = asked(client, "tools/call", name="search_tools", arguments={"query": "add numbers"})
    assert "notes__add" in text(found)
    full = asked(client, "tools/call", name="describe_tool", arguments={"name": "notes__add"})
    assert "Add two numbers." in text(full)
    status = asked(client, "tools/call", name="gateway_status", arguments={})
    assert "notes: in process, " in text(status)


def test_its_resources_and_templates_are_read(client: Client) -> None:
    listed = [one["uri"] for one in asked(client, "resources/list")["resources"]]
    assert "memo://first" in listed
    templates = asked(client, "resources/templates/list")["resourceTemplates"]
    assert "memo://{name}/page" in [one["uriTemplate"] for one in templates]
    for uri, words in (("memo://first", "the first"), ("memo://ada/page", "a page of ada")):
        (content,) = asked(client, "resources/read", uri=uri)["contents"]
        assert content["text"] == words


def test_its_prompts_are_filled_in_and_completed(client: Client) -> None:
    listed = [one["name"] for one in asked(client, "prompts/list")["prompts"]]
    assert "notes__greet" in listed
    filled = asked(client, "prompts/get", name="notes__greet", arguments={"name": "Ada"})
    assert filled["messages"][0]["content"]["text"] == "Hello, Ada"
    reference = {"type": "ref/prompt", "name": "notes__greet"}
    argument = {"name": "name", "value": "Al"}
    found = asked(client, "completion/complete", ref=reference, argument=argument)
    assert found["completion"]["values"] == ["Alan"]


def test_its_progress_reaches_the_asker(client: Client, expose: str) -> None:
    meta = {"progressToken": "steps"}
    result = use(client, expose, "notes__walk", arguments={"steps": 2}, _meta=meta)
    assert text(result) == "there"
    told = [json.loads(raw) for raw in client.heard("notifications/progress")]
    assert [(one["progressToken"], one["message"]) for one in told] == [
        ("steps", "step 1"),
        ("steps", "step 2"),
    ]


def test_its_questions_name_it_and_are_answered(client: Client, expose: str) -> None:
    if not client.modern:
        result = use(client, expose, "notes__ask")
        question = json.loads(client.heard("elicitation/create")[-1])
    else:
        first = use(client, expose, "notes__ask", _meta=META)
        ((key, asks),) = first["inputRequests"].items()
        question = asks["params"]
        more = {"inputResponses": {key: ANSWER}, "requestState": first["requestState"]}
        result = use(client, expose, "notes__ask", _meta=META, **more)
    assert question["message"] == "[notes] Your name?"
    assert text(result) == "accept Ada"


def test_its_changes_are_told(client: Client, expose: str, request: pytest.FixtureRequest) -> None:
    tool = f"learned-{abs(hash(request.node.name))}"
    if client.modern:
        wanted = {"toolsListChanged": True, "resourceSubscriptions": ["memo://first"]}
        client.request("subscriptions/listen", {"notifications": wanted})
        client.next("notifications/subscriptions/acknowledged")
    else:
        asked(client, "resources/subscribe", uri="memo://first")
    asked(client, "tools/list")
    use(client, expose, "notes__touch", arguments={"uri": "memo://first"})
    assert b"memo://first" in client.next("notifications/resources/updated")
    use(client, expose, "notes__learn", arguments={"name": tool})
    client.next("notifications/tools/list_changed")
    assert text(use(client, expose, f"notes__{tool}")) == tool


@pytest.mark.parametrize("modern", [False, True])
def test_its_own_door_has_its_plain_names(gateway: Gateway, modern: bool) -> None:
    path, able = "/servers/notes/mcp", None if modern else ABLE
    with web(gateway.port, able, modern=modern, path=path) as client:
        assert client.call("add", a=2, b=3) == "5"
        names = [tool["name"] for tool in asked(client, "tools/list")["tools"]]
        assert "add" in names


def test_a_member_that_is_a_server_of_the_config_too_is_refused(tmp_path: Path) -> None:
    entry = command(bad("stdio", "plain"))
    config = written(tmp_path / "portico.toml", {"notes": entry})
    words = portico_command(tmp_path, "serve", "--config", str(config), by=BY)
    client = Pipes(tmp_path, words=words)
    assert client.child.process.wait(60) == 1
    assert "notes is a member and a server of" in client.child.stderr()
    with client:
        pass
