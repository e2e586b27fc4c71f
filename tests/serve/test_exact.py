"""A server runs the call that the gateway decided about and logged, however it reads keys."""

import http.client
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rigs import folding
from tests.serve.gateway import Gateway, Pipes, command, written
from tests.support.running import LINKED, WAIT_S
from tests.wrap.faults import Wrap

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("exact")]

META = json.dumps(
    {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    }
)
RIG = [sys.executable, str(Path(folding.__file__))]
HIDDEN = {"tools": {"deny": ["secret*"]}}

NAMES = ["Name", "NAME", "nAme"]
TWICE = ["name", r"n\u0061me", r"\u006eame"]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    home = tmp_path_factory.mktemp("exact")
    servers = {
        "go": command(RIG, **HIDDEN),
        "first": command([*RIG, "--first"], **HIDDEN),
        "plain": command(RIG),
    }
    config = written(home / "portico.toml", servers, groups={"both": ["go", "first"]})
    with Gateway(home, config, "--expose", "all") as running:
        yield running


def asked(running: Wrap, door: str, method: str, name: str, params: str) -> str:
    """All that a modern client is answered to params that are spelled like this."""
    body = f'{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params[:-1]},"_meta":{META}}}}}'
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": method,
        **({"Mcp-Name": name} if name else {}),
    }
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=WAIT_S)
    connection.request("POST", door, body, headers)
    answer = connection.getresponse().read().decode()
    connection.close()
    return answer


DOORS = {"/mcp": "go__", "/groups/both/mcp": "go__", "/servers/go/mcp": ""}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("other", NAMES)
def test_a_name_that_some_servers_read_is_refused(gateway: Gateway, door: str, other: str) -> None:
    name = f"{DOORS[door]}read"
    params = f'{{"name":"{name}","{other}":"secret_op","arguments":{{}}}}'

    answer = asked(gateway, door, "tools/call", name, params)

    assert "could be read as 'name'" in answer
    assert "-32602" in answer
    assert "ran" not in answer


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("server", ["go", "first"])
@pytest.mark.parametrize("again", TWICE)
def test_of_two_names_the_one_that_was_checked_is_sent(
    gateway: Gateway, door: str, server: str, again: str
) -> None:
    door, name = door.replace("go", server), f"{DOORS[door]}read".replace("go", server)
    params = f'{{"name":"secret_op","{again}":"{name}","arguments":{{"Name":"kept"}}}}'

    answer = asked(gateway, door, "tools/call", name, params)

    assert "ran read with" in answer
    assert "kept" in answer
    assert "secret_op" not in answer


OTHERS = {
    "prompts/get": '{{"name":"{hello}","Name":"secret_prompt"}}',
    "resources/read": '{{"uri":"memo://open","URI":"memo://own"}}',
    "completion/complete": (
        '{{"ref":{{"type":"ref/prompt","name":"{hello}","Name":"secret_prompt"}},'
        '"argument":{{"name":"a","value":"b"}}}}'
    ),
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("method", OTHERS)
def test_the_other_methods_are_refused_alike(gateway: Gateway, door: str, method: str) -> None:
    hello = f"{DOORS[door]}hello"
    name = {"prompts/get": hello, "resources/read": "memo://open"}.get(method, "")

    answer = asked(gateway, door, method, name, OTHERS[method].format(hello=hello))

    assert "could be read as" in answer
    assert "secret" not in answer


def test_a_resource_that_is_named_twice_is_the_one_that_was_checked(gateway: Gateway) -> None:
    params = '{"uri":"memo://own","uri":"memo://open"}'

    answer = asked(gateway, "/servers/first/mcp", "resources/read", "memo://open", params)

    assert "read memo://open" in answer


@pytest.mark.parametrize("other", ["Name", "Arguments"])
def test_keys_beside_execute_tool_are_refused(gateway: Gateway, other: str) -> None:
    inner = '{"name":"go__read","arguments":{}}'
    params = f'{{"name":"execute_tool","arguments":{inner},"{other}":"secret_op"}}'

    answer = asked(gateway, "/mcp", "tools/call", "execute_tool", params)

    assert "could be read as" in answer


def test_a_key_of_execute_tool_in_another_case_is_refused(gateway: Gateway) -> None:
    params = '{"name":"execute_tool","arguments":{"name":"go__read","Name":"secret_op"}}'

    answer = asked(gateway, "/mcp", "tools/call", "execute_tool", params)

    assert "`Name` must be inside `arguments`" in answer


def test_a_session_on_pipes_is_protected_alike(tmp_path: Path) -> None:
    servers = {"first": command([*RIG, "--first"], **HIDDEN)}
    config = written(tmp_path / "portico.toml", servers)
    with Pipes(tmp_path, config, "--expose", "all", watched=False) as client:
        client.initialize()
        for method, params in (
            ("tools/call", '{"name":"secret_op","name":"first__read","x":1}'),
            ("prompts/get", '{"name":"secret_prompt","name":"first__hello","x":1}'),
        ):
            line = f'{{"jsonrpc":"2.0","id":"a","method":"{method}","params":{params}}}\n'
            client.write(line.encode())
            said = json.dumps(client.answer_to("a"))
            assert "ran read" in said or "prompt hello" in said
            assert "secret" not in said


def test_wrap_passes_such_keys_on(tmp_path: Path) -> None:
    with Wrap(tmp_path, "--", *RIG) as running:
        params = '{"name":"read","Name":"secret_op","arguments":{}}'
        answer = asked(running, "/mcp", "tools/call", "read", params)

    assert "ran secret_op" in answer


def test_wrap_with_links_refuses_such_keys(tmp_path: Path) -> None:
    with Wrap(tmp_path, "--", *RIG, by=LINKED) as running:
        params = '{"name":"read","Name":"secret_op","arguments":{}}'
        answer = asked(running, "/mcp", "tools/call", "read", params)

    assert "could be read as 'name'" in answer
    assert "ran" not in answer


def test_of_two_names_wrap_with_links_sends_the_one_they_saw(tmp_path: Path) -> None:
    with Wrap(tmp_path, "--", *RIG, "--first", by=LINKED) as running:
        params = '{"name":"secret_op","name":"read","arguments":{"name":"a","name":"b"}}'
        answer = asked(running, "/mcp", "tools/call", "read", params)

    assert "ran read with" in answer
    assert "secret_op" not in answer
