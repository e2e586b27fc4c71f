"""What is measured of the gateway is what it says: real tools, real runs, right counts."""

from collections.abc import Iterator
from importlib import import_module

import pytest

from bench.__main__ import TABLES
from bench.dialogue import sample, task
from bench.gateway import Fleet, GatewayPipe, spread, with_echo
from bench.process import Workspace
from bench.tokens import LIMIT, SIZES, TOKENIZER, count
from portico.core.catalog.namespaced import NamespacedOffer
from portico.core.catalog.server_summary import MAX_COST, ServerSummary, summarize
from portico.core.model.offer import Offer
from portico.gateway.endpoints.metatool_definitions import meta_tools
from tests.support.node import node
from tests.support.shared import shared, unavailable

NOTHING = NamespacedOffer("hub", Offer())


@pytest.mark.parametrize("table", TABLES.values())
def test_every_table_can_be_measured(table: str) -> None:
    module = import_module(table)

    assert module.HEADING
    assert callable(module.measure)


@pytest.mark.parametrize(("tools", "servers"), SIZES.items())
def test_tools_are_spread_evenly_and_no_name_is_there_twice(tools: int, servers: int) -> None:
    shared("search/catalog/corpus.jsonl")

    found = spread(tools, servers)

    assert len(found) == servers
    assert sum(map(len, found.values())) == tools
    for of_one in found.values():
        assert len({tool["name"] for tool in of_one}) == len(of_one) >= tools // servers


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    shared("search/catalog/corpus.jsonl")
    with Workspace() as workspace:
        fleet = Fleet(workspace, with_echo(spread(40, 2)))
        fleet.fill()
        yield fleet


@pytest.mark.slow
@pytest.mark.xdist_group("gateway-bench")
def test_what_is_stored_is_served_while_no_server_can_start(fleet: Fleet) -> None:
    with fleet.down():
        server = GatewayPipe(fleet.contender("down", "--expose", "all"), fleet)
        with server.process:
            tools, _ = server.offered()
            assert len(tools) == 40
            assert server.process.upstreams() == 0


@pytest.mark.slow
@pytest.mark.xdist_group("gateway-bench")
def test_both_ways_to_call_reach_the_echo(fleet: Fleet) -> None:
    server = GatewayPipe(fleet.contender("calls", "--expose", "search"), fleet)
    with server.process:
        server.open()
        server.check_call()
        echo = f"{fleet.names[0]}__echo"
        assert server.use(echo, text="hello")["content"][0]["text"] == "hello"
        load = server.load(server.prefixed_request, 50, in_flight=8)
        assert load.requests == 50


@pytest.mark.slow
@pytest.mark.xdist_group("gateway-bench")
def test_a_task_finds_describes_and_executes_the_tool_it_needs(fleet: Fleet) -> None:
    server = GatewayPipe(fleet.contender("task", "--expose", "search"), fleet)
    with server.process:
        server.open()
        done = task(server, "answer with the text that was sent")

    assert done.execute["name"].endswith("__echo")
    assert done.execute["arguments"] == {"text": "example"}


def test_a_sample_has_what_is_required_and_nothing_else() -> None:
    schema = {
        "type": "object",
        "properties": {
            "how": {"enum": ["a", "b"]},
            "many": {"type": "integer"},
            "where": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]},
            "more": {"type": "string"},
        },
        "required": ["how", "many", "where"],
    }

    assert sample(schema) == {"how": "a", "many": 10, "where": {"x": 1.5}}


def test_tokens_are_counted_as_the_tokenizer_counts_them() -> None:
    node()
    if not TOKENIZER.exists():
        unavailable("gpt-tokenizer is not installed: `make setup` does that")

    fox = "The quick brown fox jumps over the lazy dog."

    assert count(["hello world", fox, ""]) == [2, 10, 0]
    assert count(["<|endoftext|>"]) == [7]  # as plain text, not as the one token it looks like


def test_the_meta_tools_stay_below_a_thousand_tokens_with_the_longest_summary() -> None:
    node()
    if not TOKENIZER.exists():
        unavailable("gpt-tokenizer is not installed: `make setup` does that")
    about = "branches, comments, issues, pull requests, releases and reviews of"
    servers = [ServerSummary(f"hub-{name}", f"{about} {name}", NOTHING) for name in "abcdefghijkl"]

    summary = summarize(servers)
    found = meta_tools(summary, 90_000, 5)

    assert MAX_COST - 150 < len(summary) <= MAX_COST
    assert sum(count([tool.decode() for tool in found.values()])) < LIMIT
