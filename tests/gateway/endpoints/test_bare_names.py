"""Tools called by their bare names, as the pages of MCP Apps call them."""

import json
from typing import Any

import pytest

from portico.core.catalog.merge import Merged
from portico.core.catalog.namespaced import NamespacedOffer
from portico.core.model.context import Context
from portico.core.model.message import Request, Response
from portico.core.model.offer import Listed, Offer
from portico.core.model.types import Answer
from portico.gateway.endpoints.bare_names import with_bare_names

PAGE = {"ui": {"resourceUri": "ui://x"}}


def server(name: str, *tools: str, meta: Any = None) -> NamespacedOffer:
    """A server whose first tool has this `_meta`."""
    items = [json.dumps({"name": tool}).encode() for tool in tools]
    if meta is not None:
        items[0] = json.dumps({"name": tools[0], "_meta": meta}).encode()
    return NamespacedOffer(name, Offer(lists={"tools": Listed(items=tuple(items), keys=tools)}), 64)


def called(name: str, *servers: NamespacedOffer) -> tuple[str, str]:
    """The name that the next handler sees, and the message of the error; one of them is empty."""
    seen: list[Request] = []

    def next(request: Request, context: Context) -> Answer:
        seen.append(request)
        return Response(id=b"1", result=b"{}")

    merged = Merged(servers)
    params = json.dumps({"arguments": {"name": "x"}, "name": name, "_meta": {"a": 1.50}}).encode()
    request = Request(method="tools/call", id=b"1", params=params, name=name)
    answer = with_bare_names(lambda: merged, ("list_tasks",), next)(request, Context())
    assert isinstance(answer, Response)
    if answer.error:
        assert seen == []
        assert answer.code == -32602
        return "", str(json.loads(answer.error)["message"])
    assert json.loads(request.params)["name"] == request.name
    assert json.loads(request.params)["arguments"] == {"name": "x"}
    return seen[0].name, ""


def test_one_server_with_a_page_has_the_tool() -> None:
    app, plain = server("app", "show", "go", meta=PAGE), server("plain", "go", "stop")
    assert called("go", app, plain) == ("app__go", "")
    assert called("show", app, plain) == ("app__show", "")
    assert called("app__go", app, plain) == ("app__go", "")
    assert called("plain__go", app, plain) == ("plain__go", "")


def test_else_the_error_names_the_candidates() -> None:
    one, two = (server(name, "show", "go", meta=PAGE) for name in ("one", "two"))
    plain = server("plain", "go", "stop")
    assert called("go", one, two, plain)[1] == "unknown tool: go; call it as one__go or two__go"
    assert called("stop", one, plain)[1] == "unknown tool: stop; call it as plain__stop"
    many = [server(f"s{number}", "show", "go", meta=PAGE) for number in range(30)]
    assert called("go", *many)[1].endswith("s9__go or 20 more")


def test_other_names_are_left_to_the_router() -> None:
    app = server("app", "show", "list_tasks", meta=PAGE)
    for name in ("unknown", "list_tasks", "", "app__", "__go"):
        assert called(name, app) == (name, "")


@pytest.mark.parametrize("odd", ["text", 7, None, [], True])
def test_a_ui_that_is_not_an_object_is_no_page(odd: Any) -> None:
    app = server("app", "show", "go", meta={"ui": odd})
    assert called("go", app)[1] == "unknown tool: go; call it as app__go"
