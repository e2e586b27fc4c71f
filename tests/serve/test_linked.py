"""A program's links before real commands: what they hide is hidden at every door of each."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.rigs.running import scripted
from tests.serve.gateway import Gateway, command, serve_command, written
from tests.support.running import HIDING
from tests.wrap.faults import Wrap
from tests.wrap.talk import Client, Pipes, web

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("linked")]

KINDS = ("open", "secret")
ANY = {"type": "object"}
OFFER: dict[str, Any] = {
    "name": "shop",
    "tools": [{"name": f"{kind}_add", "inputSchema": ANY} for kind in KINDS],
    "prompts": [{"name": f"{kind}_greet"} for kind in KINDS],
    "resources": [{"uri": f"memo://{kind}", "name": f"{kind} memo"} for kind in KINDS],
    "templates": [{"uriTemplate": f"memo://{kind}/{{x}}", "name": kind} for kind in KINDS],
}
MERGED = ("stdio", "/mcp", "/groups/team/mcp")
WAYS = [
    (door, era) for door in (*MERGED, "/servers/shop/mcp", "wrap") for era in ("legacy", "modern")
]


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("linked")
    (folder / "shop").write_text(json.dumps(OFFER))
    (folder / "other").write_text(json.dumps({"name": "other", "tools": OFFER["tools"][:1]}))
    servers = {name: command(scripted(folder / name)) for name in ("shop", "other")}
    return written(folder / "portico.toml", servers, groups={"team": ["shop"]})


@pytest.fixture(scope="module")
def gateway(config: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    home = tmp_path_factory.mktemp("gateway")
    with Gateway(home, config, "--expose", "all", by=HIDING) as running:
        yield running


@pytest.fixture(scope="module", params=WAYS, ids="-".join)
def at(
    request: pytest.FixtureRequest, config: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Client, str]]:
    """A client at a door, and what names of tools begin with there."""
    home = tmp_path_factory.mktemp("home")
    door, era = request.param
    modern = era == "modern"
    if door == "stdio":
        words = serve_command(home, config, "--expose", "all", by=HIDING)
        with Pipes(home, words=words, modern=modern) as piped:
            if not modern:
                piped.hello()
            yield piped, "shop__"
    elif door == "wrap":
        with _wrapped(home, config.parent / "shop", modern) as client:
            yield client, ""
    else:
        port = request.getfixturevalue("gateway").port
        with web(port, path=door, modern=modern) as client:
            yield client, "" if door.startswith("/servers") else "shop__"


@contextmanager
def _wrapped(home: Path, offer: Path, modern: bool) -> Iterator[Client]:
    with (
        Wrap(home, "--", *scripted(offer), by=HIDING) as running,
        web(running.port, modern=modern) as client,
    ):
        yield client


def test_what_a_link_hides_is_in_no_list(at: tuple[Client, str]) -> None:
    client, prefix = at
    kinds = ("tools", "prompts", "resources", "resources/templates")
    said = b"".join(client.ask(f"{kind}/list") for kind in kinds)
    shown = (f'"{prefix}open_add"', f'"{prefix}open_greet"', '"memo://open"', '"memo://open/{x}"')
    assert [name for name in shown if name not in said.decode()] == []
    assert b"secret" not in said


def test_what_a_link_hides_is_not_answered(at: tuple[Client, str]) -> None:
    client, prefix = at
    reference = {"type": "ref/prompt", "name": f"{prefix}%s_greet"}
    template = {"type": "ref/resource", "uri": "memo://%s/{x}"}
    argument = {"name": "x", "value": ""}
    asks: list[tuple[str, dict[str, Any]]] = [
        ("tools/call", {"name": f"{prefix}%s_add", "arguments": {}}),
        ("prompts/get", {"name": f"{prefix}%s_greet"}),
        ("resources/read", {"uri": "memo://%s"}),
        ("resources/read", {"uri": "memo://%s/y"}),
        ("completion/complete", {"ref": reference, "argument": argument}),
        ("completion/complete", {"ref": template, "argument": argument}),
    ]
    for method, params in asks:
        for kind in KINDS:
            sent = json.loads(json.dumps(params).replace("%s", kind))
            answer = client.answer(client.request(method, sent))
            assert (b'"result":' in answer) == (kind == "open"), answer


@pytest.mark.parametrize(
    "at", [way for way in WAYS if way[0] in MERGED], indirect=True, ids="-".join, scope="module"
)
def test_the_meta_tools_do_not_know_what_a_link_hides(at: tuple[Client, str]) -> None:
    client, _ = at
    said = "".join(
        client.ask("tools/call", {"name": name, "arguments": arguments}).decode()
        for name, arguments in (
            ("search_tools", {"query": "add"}),
            ("describe_tool", {"name": "shop__open_add"}),
            ("execute_tool", {"name": "shop__open_add", "arguments": {}}),
            ("gateway_status", {}),
            ("execute_tool", {"name": "shop__nothing"}),
        )
    )
    assert "shop (1 tool)" in said
    assert "secret" not in said
    for name in ("describe_tool", "execute_tool"):
        result = client.ask("tools/call", {"name": name, "arguments": {"name": "shop__secret_add"}})
        assert b"there is no tool 'shop__secret_add'" in result
