"""Real processes with middleware in front of a Python file, a definitions file and the reference
server: it hides, refuses, adds, shadows, raises, never answers and answers twice."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.examples.served import SHOP
from tests.serve.gateway import command, written
from tests.support import node
from tests.support.running import portico_run
from tests.support.shared import ROOT
from tests.support.soak import IS_SOAK
from tests.wrap.faults import Wrap, until
from tests.wrap.talk import Client, web

pytestmark = [pytest.mark.slow, pytest.mark.soak, pytest.mark.xdist_group("middleware")]

LINKED = str(ROOT / "tests" / "rigs" / "linked.py")
HANDLERS = """
def echo(arguments):
    return f"Echo: {arguments['message']}"


def get_sum(arguments):
    return f"The sum of {arguments['a']} and {arguments['b']} is {sum(arguments.values())}."


HANDLERS = {"echo": echo, "get-sum": get_sum}
"""
DEFINITIONS = {
    "tools": [{"name": name, "inputSchema": {"type": "object"}} for name in ("echo", "get-sum")]
}
KINDS = ("python", "definitions", "everything")
WAYS = [f"{verb} {kind}" for verb in ("run", "serve") for kind in KINDS] + ["wrap everything"]
FEW = ["run python", "serve definitions", "wrap everything"]
OTHERS = ["run definitions", "serve python", "wrap everything"]
LINKS = ("adds", "shadows")
WHOLE = ["run everything", "serve everything"]
"""In `make test`, each link runs at FEW or at OTHERS, and the first also at WHOLE, so that each
pair of verb, kind and link is there."""
ERAS = ("legacy", "modern")


class Run(Wrap):
    """A running `portico run --http`."""

    verb = "run"


class Serve(Wrap):
    """A running `portico serve --http`."""

    verb = "serve"


def words_of(kind: str, folder: Path) -> tuple[str, ...]:
    """The component, as `portico run` takes it."""
    (folder / "shop.py").write_text(SHOP)
    (folder / "tools.json").write_text(json.dumps(DEFINITIONS))
    (folder / "handlers.py").write_text(HANDLERS)
    if kind == "python":
        return (str(folder / "shop.py"),)
    if kind == "definitions":
        return (str(folder / "tools.json"), "--handlers", str(folder / "handlers.py"))
    return (" ".join(everything()),)


def everything() -> list[str]:
    return [str(node.node()), str(node.everything_server()), "stdio"]


@contextmanager
def running(way: str, link: str, folder: Path) -> Iterator[tuple[Wrap, str]]:
    """A process behind a link, and how names begin there."""
    verb, kind = way.split()
    by = (LINKED, link)
    words = words_of(kind, folder)
    if verb == "run":
        with Run(folder / "home", *words, by=by) as process:
            yield process, ""
    elif verb == "wrap":
        with Wrap(folder / "home", "--", *everything(), by=by) as process:
            yield process, ""
    else:
        server = everything() if kind == "everything" else portico_run(Path(words[0]), *words[1:])
        config = written(folder / "portico.toml", {"shop": command(server)})
        options = ("--config", str(config), "--expose", "all")
        with Serve(folder / "home", *options, by=by) as process:
            yield process, "shop__"


@contextmanager
def client_of(process: Wrap, era: str) -> Iterator[Client]:
    with web(process.port, modern=era == "modern") as client:
        yield client


def names(client: Client) -> set[str]:
    return {tool["name"] for tool in json.loads(client.ask("tools/list"))["tools"]}


def error(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(client.error(client.start(tool, **arguments)))
    return found


def at(ways: list[str]) -> pytest.MarkDecorator:
    """Run at these in `make test`, and at all in `make soak`."""
    return pytest.mark.parametrize("way", WAYS if IS_SOAK else ways)


@at(FEW + WHOLE)
def test_a_tool_that_a_view_hides_cannot_be_called(way: str, tmp_path: Path) -> None:
    with running(way, "hides", tmp_path) as (process, prefix):
        for era in ERAS:
            with client_of(process, era) as client:
                shown = names(client)
                assert f"{prefix}echo" in shown
                assert f"{prefix}get-sum" not in shown
                assert client.call(f"{prefix}echo", message="hello") == "Echo: hello"
                found = error(client, f"{prefix}get-sum", a=2, b=3)
                assert found == {"code": -32602, "message": f"unknown tool: {prefix}get-sum"}


@at(OTHERS)
def test_a_link_refuses_a_call(way: str, tmp_path: Path) -> None:
    with running(way, "refuses", tmp_path) as (process, prefix):
        for era in ERAS:
            with client_of(process, era) as client:
                found = error(client, f"{prefix}get-sum", a=2, b=3)
                assert found == {"code": -31000, "message": "not today"}
                assert client.call(f"{prefix}echo", message="hello") == "Echo: hello"


@pytest.mark.parametrize(
    ("way", "link"),
    [*product(WAYS, LINKS)] if IS_SOAK else [*product(FEW, LINKS[:1]), *product(OTHERS, LINKS[1:])],
)
def test_a_link_adds_or_shadows_a_tool_that_calls_two_others(
    way: str, link: str, tmp_path: Path
) -> None:
    with running(way, link, tmp_path) as (process, prefix):
        name = "both" if link == "adds" else f"{prefix}echo"
        for era in ERAS:
            with client_of(process, era) as client:
                assert name in names(client)
                said = client.call(name)
                assert said == "Echo: hello & The sum of 2 and 3 is 5."
                assert "unknown tool" in error(client, f"{prefix}get-sum", a=2, b=3)["message"]
                if prefix:
                    assert "**both**" in client.call("search_tools", query="both") or prefix in name
                    assert client.call("execute_tool", name=name, arguments={}) == said


@at(OTHERS)
def test_a_view_that_raises_shows_nothing(way: str, tmp_path: Path) -> None:
    with running(way, "raises", tmp_path) as (process, prefix):
        with client_of(process, "modern") as client:
            for request in (
                client.request("tools/list"),
                client.start(f"{prefix}echo", message="hello"),
            ):
                found = json.loads(client.error(request))
                assert found["code"] == -32603
                assert "the link 'Raises' failed to filter the lists" in found["message"]
        assert until(lambda: "RuntimeError: a secret of ours" in process.stderr())
        assert process.stderr().count("RuntimeError: a secret of ours") == 1


@at(FEW)
def test_a_call_that_is_never_answered_ends_with_the_process(way: str, tmp_path: Path) -> None:
    with running(way, "silent", tmp_path) as (process, prefix):
        for era in ERAS:
            with client_of(process, era) as client:
                held = client.start(f"{prefix}get-sum", a=2, b=3)
                assert client.call(f"{prefix}echo", message="hello") == "Echo: hello"
                assert held not in client.answers
        with client_of(process, "modern") as client:  # it has no session to end
            client.start(f"{prefix}get-sum", a=2, b=3)
            assert client.call(f"{prefix}echo", message="hello") == "Echo: hello"
            assert process.stop() == 0


@at(OTHERS)
def test_a_call_that_is_made_twice_has_one_answer(way: str, tmp_path: Path) -> None:
    with running(way, "twice", tmp_path) as (process, prefix):
        for era in ERAS:
            with client_of(process, era) as client:
                said = client.call(f"{prefix}get-sum", a=2, b=3)
                assert said == "The sum of 2 and 3 is 5."
