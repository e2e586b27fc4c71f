"""Values that components keep for sessions, through a real gateway and a real `run`."""

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.serve.components import Workshop
from tests.serve.gateway import Gateway, command, serve_command
from tests.serve.owners import owner_in
from tests.wrap.faults import Wrap, portico_command
from tests.wrap.talk import Client, Pipes, web

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("serve-sessions")]

BASKET = '''
import os

from portico import Context, Server

server = Server("basket")


@server.tool
async def put(item: str, context: Context) -> list[str]:
    """Put something into the basket."""
    await context.store.set("items", [*await context.store.get("items", []), item])
    return await context.store.get("items")


@server.tool
async def bad(size: int, context: Context) -> str:
    """Keep too much."""
    await context.store.set("items", "x" * size)
    return "kept"


@server.tool(task=True)
async def later(context: Context) -> str:
    """Read in a task."""
    return ", ".join(await context.store.get("items", ["nothing"]))


@server.tool
def given(context: Context) -> str:
    """Return what the request has in its metadata."""
    meta = context.request.decode().get("_meta", {})
    return str({key: value for key, value in meta.items() if key.startswith("portico/")})


@server.tool
def end() -> str:
    """End this process."""
    os._exit(3)


@server.tool
def variable() -> str:
    """Return what children of this process would get."""
    return os.environ.get("PORTICO_SESSIONS", "nothing")
'''


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    made = Workshop(tmp_path)
    path = made.file("basket.py", BASKET)
    home = str(made.home)
    served = ["env", f"PORTICO_HOME={home}", sys.executable, "-m", "portico", "run", str(path)]
    made.write(
        {
            "own": {"path": "basket.py"},
            "second": {"path": "basket.py"},
            "inside": {"path": "basket.py", "in_process": True},
        },
        servers={"server": command(served)},
    )
    return made


def items(client: Client, item: str, member: str = "own") -> Any:
    return json.loads(client.ask("tools/call", _put(f"{member}__put", item)))["structuredContent"][
        "result"
    ]


def _put(tool: str, item: str, **meta: Any) -> dict[str, Any]:
    more = {"_meta": meta} if meta else {}
    return {"name": tool, "arguments": {"item": item}, **more}


@pytest.fixture
def window(workshop: Workshop) -> Iterator[Any]:
    with ExitStack() as stack:

        def opened(modern: bool) -> Client:
            words = serve_command(workshop.home, workshop.config)
            client = stack.enter_context(Pipes(workshop.home, words=words, modern=modern))
            if not modern:
                client.hello()
            return client

        yield opened


class TokenGateway(Wrap):
    """A running `portico serve --http` that requires its token."""

    def __init__(self, home: Path, *words: str) -> None:
        super().__init__(home, *words, "--auth", "token")


class ServedWithToken(TokenGateway):
    verb = "serve"


class RunWithToken(TokenGateway):
    verb = "run"


def token(home: Path) -> str:
    return (home / "state" / "token").read_text().strip()


def test_each_window_has_its_own_values_and_keeps_them_when_processes_end(
    workshop: Workshop, window: Any
) -> None:
    one, two = window(False), window(True)
    assert [items(one, "tea"), items(two, "rum")] == [["tea"], ["rum"]]
    assert items(one, "milk", "inside") == ["milk"]
    assert items(two, "gin", "inside") == ["gin"]
    assert items(one, "salt", "second") == ["salt"]  # the same file is another component
    one.answer(one.start("own__end"))  # its process ends, and the next one continues
    assert items(one, "milk") == ["tea", "milk"]
    os.kill(owner_in(workshop.home / "state"), signal.SIGKILL)
    for client in (one, two):
        client.ask("tools/list")  # is sent again, to the next owner
    assert items(one, "bread") == ["tea", "milk", "bread"]
    assert items(two, "ice") == ["rum", "ice"]
    assert items(one, "jam", "inside") == ["milk", "jam"]


def test_sessions_over_http_are_apart_and_a_new_one_begins_empty(workshop: Workshop) -> None:
    with Gateway(workshop.home, workshop.config) as gateway:
        with web(gateway.port) as one, web(gateway.port) as two:
            assert [items(one, "tea"), items(two, "rum")] == [["tea"], ["rum"]]
            assert items(one, "milk") == ["tea", "milk"]
        with web(gateway.port) as third:
            assert items(third, "ice") == ["ice"]
        with web(gateway.port, modern=True) as nobody:
            for member in ("own", "inside"):
                answer = nobody.ask("tools/call", _put(f"{member}__put", "tea"))
                result = json.loads(answer)
                assert result["isError"]
                assert "this request has no session" in result["content"][0]["text"]


def test_with_a_token_the_session_is_the_principal_and_outlives_the_gateway(
    workshop: Workshop,
) -> None:
    for expected in (["tea"], ["tea", "tea"]):
        config = ("--config", str(workshop.config))
        serving = ServedWithToken(workshop.home, *config)
        with serving as gateway, web(gateway.port, modern=True) as client:
            client.token = token(workshop.home)
            assert items(client, "tea") == expected
            assert items(client, "tea", "inside") == expected
            assert client.call("own__later") == ", ".join(expected)


def test_servers_get_no_session_and_nobody_can_name_one(workshop: Workshop, window: Any) -> None:
    one, two = window(True), window(True)
    items(one, "tea")
    forged = {"portico/session": "forged"}
    params = {"name": "own__given", "arguments": {}, "_meta": forged}
    own = json.loads(one.ask("tools/call", params))["content"][0]["text"]
    assert "forged" not in own
    (handle,) = eval(own).values()
    assert len(handle) == 40
    assert one.call("server__given") == "{}"
    assert one.call("inside__given") == "{}"
    assert one.call("second__given") != own
    # Another client that has learned it gets its own basket all the same, and so does a server.
    stolen = {"portico/session": handle}
    for member in ("own", "server"):
        answer = json.loads(two.ask("tools/call", _put(f"{member}__put", "rum", **stolen)))
        assert answer["structuredContent"]["result"] == ["rum"]
    assert items(one, "milk") == ["tea", "milk"]
    assert one.call("own__variable") == "nothing"


def test_a_value_over_the_limit_is_refused_and_the_old_one_stays(window: Any) -> None:
    client = window(True)
    items(client, "tea")
    result = json.loads(
        client.ask("tools/call", {"name": "own__bad", "arguments": {"size": 2**20}})
    )
    assert result["isError"]
    why = "the value of 'items' is too large: it has 1048578 bytes, and 1048576 is the limit"
    assert why in result["content"][0]["text"]
    assert items(client, "milk") == ["tea", "milk"]


@pytest.mark.parametrize("modern", [False, True])
def test_a_task_has_the_session_of_its_client(window: Any, modern: bool) -> None:
    client, other = window(modern), window(modern)
    items(client, "tea")
    params: dict[str, Any] = {"name": "own__later", "arguments": {}}
    if not modern:
        params["task"] = {}
        created = json.loads(client.ask("tools/call", params))["task"]["taskId"]
        result = client.ask("tasks/result", {"taskId": created})
        params = {"name": "own__later", "arguments": {}, "task": {}}
        nobody = json.loads(other.ask("tools/call", params))["task"]["taskId"]
        assert "nothing" in other.ask("tasks/result", {"taskId": nobody}).decode()
    else:
        result = client.ask("tools/call", params)
    assert json.loads(result)["content"][0]["text"] == "tea"


@pytest.mark.parametrize("modern", [False, True])
def test_run_keeps_values_for_each_connection(workshop: Workshop, modern: bool) -> None:
    for words in (["basket.py"], ["basket.py", "other=basket2.py"]):
        workshop.file("basket2.py", 'from portico import Server\nserver = Server("two")\n')
        paths = [word.replace("basket", str(workshop.folder / "basket")) for word in words]
        for _ in range(2):
            argv = portico_command(workshop.home, "run", *paths)
            with Pipes(workshop.home, words=argv, modern=modern) as client:
                if not modern:
                    client.hello()
                for expected in (["tea"], ["tea", "tea"]):
                    result = json.loads(client.ask("tools/call", _put("put", "tea")))
                    assert result["structuredContent"]["result"] == expected


def test_run_over_http_keeps_the_values_of_its_token(workshop: Workshop) -> None:
    for expected in (["tea"], ["tea", "tea"]):
        serving = RunWithToken(workshop.home, str(workshop.folder / "basket.py"))
        with serving as running, web(running.port, modern=True) as client:
            client.token = token(workshop.home)
            result = json.loads(client.ask("tools/call", _put("put", "tea")))
            assert result["structuredContent"]["result"] == expected
