"""The links that a config names: before every member, for all windows, replaced on a change."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.rigs.running import bad
from tests.serve.components import CALC, WAYS, Workshop, connected
from tests.serve.gateway import Gateway, Pipes, command, refused, serve_command, text_in
from tests.support import node
from tests.support.messages import initialize
from tests.support.running import WAIT_S
from tests.wrap.faults import until
from tests.wrap.talk import Client

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("serve-linked-config")]

MARKS = """
from msgspec.structs import replace
from portico import after


def marking(word):
    def link(next):
        def handle(request, context):
            if request.method != "tools/call" or request.asked not in ("", "execute_tool"):
                return next(request, context)
            return after(next(request, context), mark)

        return handle

    def mark(response):
        old = b'"text":"'
        return replace(response, result=response.result.replace(old, old + word.encode() + b" ", 1))

    return link


link = marking("outer")
inner = marking("inner")
links_of_two = [marking("one"), marking("two")]
"""
GUARDS = '''
from portico import McpError, Offer, Server

server = Server("guards")


@server.tool
def about() -> str:
    """Say what it guards."""
    return "everything"


class Guard:
    def __call__(self, next):
        def handle(request, context):
            if request.method == "tools/call" and request.name.endswith("get-sum"):
                raise McpError("sums are not allowed here")
            return next(request, context)

        return handle

    def view(self, offer: Offer) -> Offer:
        return offer.keep(tools=lambda name: not name.endswith("get-env"))


link = Guard()
'''
ECHO = {"message": "hi"}


@pytest.fixture(scope="module", params=["search", "all"])
def linked(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Workshop, str]:
    """The reference server and a component behind three files of links."""
    made = Workshop(tmp_path_factory.mktemp("linked"))
    made.file("marks.py", MARKS)
    made.file("guards.py", GUARDS)
    made.file("calc.py", CALC)
    everything = [str(node.node()), str(node.everything_server()), "stdio"]
    made.write(
        {"calc": {"path": "calc.py"}, "inside": {"path": "calc.py", "in_process": True}},
        {"everything": command(everything)},
        expose=request.param,
        links=["./guards.py", "marks.py", "./marks.py:inner"],
    )
    return made, request.param


@pytest.fixture(scope="module")
def gateway(linked: tuple[Workshop, str]) -> Iterator[Gateway]:
    with Gateway(linked[0].home, linked[0].config) as running:
        yield running


@pytest.fixture(params=WAYS)
def client(
    request: pytest.FixtureRequest, linked: tuple[Workshop, str], gateway: Gateway, tmp_path: Path
) -> Iterator[Client]:
    with connected(request.param, linked[0].config, gateway, tmp_path) as found:
        yield found


def answer(client: Client, expose: str, tool: str, **arguments: Any) -> dict[str, Any]:
    """The whole answer to a call, in the way that its gateway shows."""
    params = {"name": tool, "arguments": arguments}
    if expose == "search":
        params = {"name": "execute_tool", "arguments": params}
    found: dict[str, Any] = json.loads(client.answer(client.request("tools/call", params)))
    return found


def test_links_stand_in_order_before_every_member(
    client: Client, linked: tuple[Workshop, str]
) -> None:
    expose = linked[1]
    for tool, arguments, text in (
        ("calc__add", {"a": 2, "b": 3}, "5"),
        ("inside__add", {"a": 2, "b": 3}, "5"),
        ("everything__echo", ECHO, "Echo: hi"),
        ("guards__about", {}, "everything"),
    ):
        found = answer(client, expose, tool, **arguments)
        assert text_in(found["result"]) == f"outer inner {text}", tool


def test_a_link_refuses_and_hides_everywhere(client: Client, linked: tuple[Workshop, str]) -> None:
    expose = linked[1]
    refusal = answer(client, expose, "everything__get-sum", a=1, b=2)
    assert "sums are not allowed here" in str(refusal)
    assert "unknown tool" in str(answer(client, expose, "everything__get-env")).lower() or (
        "no tool" in str(answer(client, expose, "everything__get-env"))
    )
    listed = json.loads(client.ask("tools/list"))["tools"]
    assert not [tool for tool in listed if tool["name"].endswith("get-env")]
    search = {"name": "search_tools", "arguments": {"query": "environment variables env"}}
    assert b"get-env" not in client.ask("tools/call", search)


FAILING = {
    "missing": (None, "redact.py: no such file"),
    "raising": ("\n\n1 / 0\n", "redact.py:3: ZeroDivisionError: division by zero"),
    "exiting": ("import sys\nsys.exit('no licence')\n", "redact.py:2: the import exited"),
    "without a link": ("x = 1\n", "redact.py: contains neither a Server nor a link"),
    "a server alone": (CALC, "redact.py: contains no middleware"),
    "wrong": ("link = 5\n", "redact.py:link: int is not a link"),
}


@pytest.mark.parametrize("case", FAILING)
@pytest.mark.parametrize("options", [(), ("--alone",), ("--http", "127.0.0.1:0")], ids=str)
def test_a_link_that_cannot_be_loaded_ends_the_start(
    case: str, options: tuple[str, ...], tmp_path: Path
) -> None:
    workshop = Workshop(tmp_path)
    text, words = FAILING[case]
    if text is not None:
        workshop.file("redact.py", text)
    workshop.write({}, links=["./redact.py"])
    code, said = refused(workshop.home, workshop.config, *options)
    assert code == 1
    assert f"{workshop.config}: gateway.links[0]: " in said
    assert words in said
    assert "Traceback" not in said


@pytest.mark.parametrize("options", [(), ("--alone",)], ids=["shared", "alone"])
def test_a_client_that_waits_for_its_handshake_gets_the_reason(
    options: tuple[str, ...], tmp_path: Path
) -> None:
    workshop = Workshop(tmp_path)
    workshop.file("redact.py", "raise RuntimeError('the rules are missing')\n")
    workshop.write({}, links=["./redact.py"])
    done = subprocess.run(
        serve_command(workshop.home, workshop.config, *options),
        input=json.dumps(initialize()).encode() + b"\n",
        capture_output=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 1
    assert "RuntimeError: the rules are missing" in json.loads(done.stdout)["error"]["message"]
    assert b"RuntimeError: the rules are missing" in done.stderr


def test_two_windows_share_one_gateway_with_its_links(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path)
    # A file that is named twice is imported once.
    counting = f"import os\nopen({str(tmp_path / 'loads')!r}, 'a').write(f'{{os.getpid()}}\\n')\n"
    workshop.file("marks.py", counting + MARKS)
    workshop.file("calc.py", CALC)
    workshop.write({"calc": {"path": "calc.py"}}, links=["marks.py", "marks.py:inner"])
    with ExitStack() as stack:
        windows = [stack.enter_context(Pipes(workshop.home, workshop.config)) for _ in range(2)]
        for window in windows:
            window.initialize()
            assert window.said("calc__add", a=2, b=3) == "outer inner 5"
        loads = (tmp_path / "loads").read_text().split()
        assert loads == [str(windows[0].owner)]
        windows[0].__exit__(None, None, None)
        assert windows[1].said("calc__add", a=2, b=3) == "outer inner 5"


def test_links_are_replaced_when_their_file_or_the_config_changes(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path)
    workshop.file("words.py", 'WORD = "first"\n')
    lines = MARKS + "\nfrom words import WORD\nlink = marking(WORD)\n"
    workshop.file("marks.py", lines)
    workshop.file("guards.py", GUARDS)
    workshop.file("calc.py", CALC)
    calc = {"calc": {"path": "calc.py"}}
    workshop.write(calc, links=["marks.py"])
    with Pipes(workshop.home, workshop.config) as gateway:
        gateway.initialize()

        def said() -> str:
            return gateway.said("calc__add", a=2, b=3)

        assert said() == "first 5"
        # A module beside the file is imported again with it.
        workshop.file("words.py", 'WORD = "changed"\n')
        workshop.file("marks.py", lines + "\n")
        assert until(lambda: said() == "changed 5")
        workshop.file("marks.py", "1 / 0\n")
        assert until(lambda: "marks.py:1: ZeroDivisionError" in gateway.stderr())
        assert "links not reloaded; keeping the previous ones" in gateway.stderr()
        assert said() == "changed 5"
        workshop.file("marks.py", MARKS)
        assert until(lambda: said() == "outer 5")
        workshop.write(calc, links=["marks.py:inner", "marks.py:links_of_two", "guards.py"])
        assert until(lambda: said() == "inner one two 5")
        assert until(lambda: "guards__about" in gateway.tools())
        workshop.write(calc, links=["marks.py:nowhere"])
        assert until(lambda: "there is no variable 'nowhere'" in gateway.stderr())
        assert said() == "inner one two 5"
        workshop.write(calc)
        assert until(lambda: said() == "5")
        assert until(lambda: "guards__about" not in gateway.tools())


def test_a_file_of_links_with_a_server_needs_a_name_of_its_own(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path)
    workshop.file("plain.py", GUARDS)
    workshop.write({}, {"plain": command(bad("stdio", "plain"))}, links=["plain.py"])
    code, said = refused(workshop.home, workshop.config)
    assert code == 1
    assert f"plain is a member and a server of {workshop.config}; rename one" in said
