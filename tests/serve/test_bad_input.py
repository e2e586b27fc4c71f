"""Clients that ask the gateway's own tools for nonsense are told what is right, and nobody else."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.rigs.running import bad, shelf
from tests.serve.gateway import Pipes, command, result_of, text_in, written
from tests.wrap.faults import until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("serve-input")]

DEEP = 10_000


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipes]:
    """Two servers behind a gateway on pipes."""
    folder = tmp_path_factory.mktemp("input")
    (folder / "books").write_text("book lists")
    entries = {"well": command(bad("stdio", "plain")), "shelf": command(shelf(folder / "books"))}
    config = written(folder / "portico.toml", entries, gateway={"expose": "search"})
    with Pipes(folder / "home", config, watched=False) as running:
        running.initialize()
        assert until(lambda: not any(one["pending"] for one in running.status().values()))
        running.said("search_tools", query="echo")
        yield running
    assert "Traceback" not in running.stderr()


@pytest.fixture(autouse=True)
def goes_on(gateway: Pipes) -> Iterator[None]:
    """Whatever was asked, the next call is answered."""
    yield
    assert text_in(gateway.execute("well__echo", text="hi")) == "hi"


WRONG: list[tuple[str, Any, str]] = [
    ("search_tools", {"query": 7}, "query"),
    ("search_tools", {"query": None}, "query"),
    ("search_tools", {"queries": "book"}, "queries"),
    ("search_tools", {"queries": [1]}, "queries"),
    ("search_tools", {"query": ""}, "`query` is missing"),
    ("search_tools", {"query": " \n\t"}, "`query` is missing"),
    ("search_tools", {}, "`query` is missing"),
    ("search_tools", {"query": "x", "limit": "many"}, "limit"),
    ("search_tools", {"query": "x", "limit": 1.5}, "limit"),
    ("search_tools", {"query": "x", "server": "nobody"}, "the servers are well"),
    ("search_tools", {"query": "x", "detail": "all"}, "brief or full"),
    ("search_tools", {"query": "x", "offset": 1}, "offset"),
    ("search_tools", {"queries": ["x"] * 100}, "at most 10 queries"),
    ("search_tools", [], "search_tools"),
    ("describe_tool", {}, "`name` is missing"),
    ("describe_tool", {"name": "well__ech"}, "did you mean well__echo"),
    ("describe_tool", {"name": "x" * 100_000}, "there is no tool"),
    ("describe_tool", {"names": ["a"] * 1000}, "at most 20 names"),
    ("describe_tool", {"name": {"a": 1}}, "name"),
    ("execute_tool", {}, "`name` is missing"),
    ("execute_tool", {"name": "well__ech"}, "did you mean well__echo"),
    ("execute_tool", {"name": "echo"}, "there is no tool 'echo'"),
    ("execute_tool", {"name": "x" * 100_000}, "there is no tool"),
    ("execute_tool", {"name": "execute_tool"}, "call it directly"),
    ("execute_tool", {"name": "well__echo", "text": "hi"}, "inside `arguments`"),
    ("execute_tool", {"name": "well__echo", "arguments": 7}, "JSON object"),
    ("execute_tool", {"name": "well__echo", "arguments": "{no"}, "JSON object"),
    ("execute_tool", {"name": "well__echo", "timeout_s": -1}, "timeout_s"),
    ("execute_tool", {"name": "well__echo", "timeout_s": "soon"}, "timeout_s"),
    ("refresh_tools", {"server": "nobody"}, "the servers are well"),
    ("refresh_tools", {"server": 7}, "server"),
    ("gateway_status", {"verbose": True}, "verbose"),
    ("gateway_status", {"server": "nobody"}, "the servers are well"),
    ("gateway_status", {"detail": "all"}, "gateway_status: `detail` must be brief or full"),
]


@pytest.mark.parametrize(("tool", "arguments", "words"), WRONG)
def test_a_wrong_call_is_told_what_is_right(
    gateway: Pipes, tool: str, arguments: Any, words: str
) -> None:
    answer = gateway.ask("tools/call", {"name": tool, "arguments": arguments})
    result = result_of(answer)
    assert result["isError"]
    assert words in text_in(result)
    assert len(text_in(result)) < 2_000


@pytest.mark.parametrize("limit", [0, -1, 1, 51, 10**9, 10**30])
def test_a_limit_beyond_what_is_sensible_is_none(gateway: Pipes, limit: int) -> None:
    result = result_of(gateway.call("search_tools", query="echo", limit=limit))
    if result.get("isError"):
        assert "limit" in text_in(result)
    else:
        tools = result["structuredContent"]["results"][0]["tools"]
        assert 1 <= len(tools) <= 50
        assert tools[0]["name"] == "well__echo"


@pytest.mark.parametrize(
    "query",
    [
        "x" * 200_000,
        "echo " * 20_000,
        "\u0000\u001b[2J",
        "é" * 999,
        "🙂",
        "(((",
        "a\u202eb",
        "%s{}",
    ],
)
def test_any_query_is_answered(gateway: Pipes, query: str) -> None:
    result = result_of(gateway.call("search_tools", query=query))
    assert len(text_in(result)) < 5_000


def test_hundreds_of_calls_at_once_are_each_answered_with_their_own(gateway: Pipes) -> None:
    calls = {}
    for number in range(300):
        text = f"{number} é"
        call = {"name": "well__echo", "arguments": {"text": text}}
        if number % 3 == 0:
            text, call = "book", {"name": "shelf__book"}
        params = {"name": "execute_tool", "arguments": call}
        calls[gateway.start("tools/call", params)] = text
    answers = {id: text_in(result_of(gateway.answer_to(id))) for id in calls}
    assert answers == calls


def test_several_queries_are_each_answered(gateway: Pipes) -> None:
    result = result_of(gateway.call("search_tools", query="echo", queries=["book", "", "xyzzy"]))
    answered = result["structuredContent"]["results"]
    assert [one["query"] for one in answered][:2] == ["echo", "book"]
    assert answered[0]["tools"][0]["name"] == "well__echo"
    assert answered[1]["tools"][0]["name"] == "shelf__book"


def test_names_of_which_some_are_wrong_give_the_others(gateway: Pipes) -> None:
    result = result_of(gateway.call("describe_tool", names=["well__echo", "well__nothing"]))
    assert [tool["name"] for tool in result["structuredContent"]["tools"]] == ["well__echo"]
    assert "there is no tool 'well__nothing'" in text_in(result)


def test_three_megabytes_of_arguments_arrive_whole(gateway: Pipes) -> None:
    text = "0123456789é" * 250_000
    assert text_in(gateway.execute("well__echo", text=text)) == text


def raw(gateway: Pipes, tool: str, arguments: str) -> dict[str, Any]:
    """The answer to a call with these arguments, as they are written."""
    params = f'{{"name":"{tool}","arguments":{arguments}}}'
    gateway.received_before()
    gateway.write(
        f'{{"jsonrpc":"2.0","id":"raw","method":"tools/call","params":{params}}}\n'.encode()
    )
    while "method" in (answer := gateway.receive()):
        continue
    assert answer["id"] == "raw"
    return answer


@pytest.mark.parametrize("shape", ["object", "text", "outside"])
def test_arguments_nested_without_end_are_refused(gateway: Pipes, shape: str) -> None:
    nested = '{"a":' * DEEP + "1" + "}" * DEEP
    if shape == "text":
        nested = json.dumps(nested)
    inner = f'{{"name":"well__echo","arguments":{nested}}}'
    answer = raw(gateway, "execute_tool", nested if shape == "outside" else inner)
    told = answer["error"]["message"] if "error" in answer else text_in(answer["result"])
    assert "nested" in told or "JSON object" in told
    assert len(told) < 2_000


HALF = '"\\ud800"'


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("search_tools", f'{{"query":{HALF}}}'),
        ("describe_tool", f'{{"name":{HALF}}}'),
        ("execute_tool", f'{{"name":{HALF}}}'),
        ("execute_tool", f'{{"name":"well__echo","arguments":{{"text":{HALF}}}}}'),
    ],
)
def test_half_a_pair_is_refused_and_breaks_nothing(
    gateway: Pipes, tool: str, arguments: str
) -> None:
    answer = raw(gateway, tool, arguments)
    assert "error" in answer or answer["result"]["isError"]


def test_names_that_no_tool_has_are_refused_as_the_spec_says(gateway: Pipes) -> None:
    for method, params, code in (
        ("tools/call", {"name": "well__nothing"}, -32602),
        ("tools/call", {"name": ""}, -32602),
        ("tools/call", {}, -32602),
        ("tools/call", {"name": ["a"]}, -32602),
        ("prompts/get", {"name": "hello"}, -32602),
        ("resources/read", {"uri": "portico://nobody/x"}, -32002),
        ("resources/read", {"uri": "portico://"}, -32002),
        ("completion/complete", {"ref": {"type": "ref/prompt", "name": "x"}}, -32602),
        ("no/such", {}, -32601),
    ):
        answer = gateway.ask(method, params)
        assert answer["error"]["code"] == code, (method, params, answer)


def test_a_tools_own_refusal_passes_through_as_it_is(gateway: Pipes) -> None:
    answer = gateway.call("execute_tool", name="well__fail", arguments={})
    assert answer["error"] == {
        "code": 1234,
        "message": "it cannot be done",
        "data": {"why": ["because", None]},
    }
