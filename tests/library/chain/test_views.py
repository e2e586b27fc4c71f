"""Views of links: what they hide, add and shadow, in lists and in calls."""

import asyncio
import json
from typing import Any

import pytest

from portico import (
    Answer,
    Context,
    Handler,
    NameClash,
    Offer,
    RegistrationError,
    Request,
    Response,
    Server,
)
from portico.core.model.offer import KINDS
from portico.core.model.version import Version
from tests.gateway.registries import LEGACY, MODERN, Client

ERAS = pytest.mark.parametrize("version", [LEGACY, MODERN])
ANY = {"type": "object"}


def shop(reached: list[str]) -> Server:
    """An open and a secret one of everything; each writes down that it was reached."""
    server = Server("shop", "1")
    for kind in ("open", "secret"):
        _register(server, kind, reached)
    return server


def _register(server: Server, kind: str, reached: list[str]) -> None:
    def came(what: str) -> str:
        reached.append(f"{kind} {what}")
        return f"{kind} {what}"

    server.add_tool({"name": f"{kind}_add", "inputSchema": ANY}, lambda given: came("add"))
    server.prompt(lambda word="": came("greet"), name=f"{kind}_greet")
    server.completion(f"{kind}_greet", "word")(lambda value: [came("word")])
    server.resource(f"memo://{kind}", name=kind)(lambda: came("memo"))
    server.resource(f"memo://{kind}/{{x}}", name=f"{kind} note")(lambda x: came(f"note {x}"))


class Hides:
    """A link with a view and nothing else: the chain guards what it hides."""

    def __call__(self, next: Handler) -> Handler:
        return next

    def view(self, offer: Offer) -> Offer:
        return offer.keep(**dict.fromkeys(KINDS, lambda key: "secret" not in key))


async def client_of(server: Server, version: str, *links: Any) -> Client:
    client = Client(server.endpoint(links), version)
    if version == LEGACY:
        await client.hello()
    return client


def asks(kind: str) -> list[tuple[str, dict[str, Any]]]:
    """Every way to reach something."""
    argument = {"name": "word", "value": ""}
    return [
        ("tools/call", {"name": f"{kind}_add", "arguments": {}}),
        ("prompts/get", {"name": f"{kind}_greet"}),
        ("resources/read", {"uri": f"memo://{kind}"}),
        ("resources/read", {"uri": f"memo://{kind}/1"}),
        ("resources/read", {"uri": "", "name": kind}),
        (
            "completion/complete",
            {"ref": {"type": "ref/prompt", "name": f"{kind}_greet"}, "argument": argument},
        ),
        (
            "completion/complete",
            {"ref": {"type": "ref/resource", "uri": f"memo://{kind}/{{x}}"}, "argument": argument},
        ),
    ]


@ERAS
async def test_the_chain_guards_what_a_view_hides(version: str) -> None:
    reached: list[str] = []
    client = await client_of(shop(reached), version, Hides())
    for method, params in asks("secret"):
        assert "error" in await client.request(method, params), (method, params)
    if version == LEGACY:
        assert "error" in await client.request("resources/subscribe", {"uri": "memo://secret"})
        assert "error" in await client.request("resources/subscribe", {"uri": "MEMO://secret/1"})
        await client.result("resources/subscribe", {"uri": "memo://open"})
    assert reached == []
    for method, params in asks("open"):
        assert "result" in await client.request(method, params), (method, params)
    said = [await client.names(kind) for kind in KINDS]
    assert "secret" not in json.dumps(said)


def text_result(request: Request, text: str) -> Response:
    result = {"content": [{"type": "text", "text": text}], "resultType": "complete"}
    return Response(id=request.id, result=json.dumps(result).encode())


class Twice:
    """A link that adds a tool, which calls a tool that the link hides."""

    shadow: tuple[str, ...] = ()
    name = "twice"

    def __call__(self, next: Handler) -> Handler:
        def handle(request: Request, context: Context) -> Answer:
            if request.method == "tools/call" and request.name == self.name:
                return self._both(next, request, context)
            return next(request, context)

        return handle

    async def _both(self, next: Handler, request: Request, context: Context) -> Response:
        first = await next(request.calling("secret_add", {}), context)
        second = await next(request.calling("open_add", {}), context)
        texts = [answer.decode()["result"]["content"][0]["text"] for answer in (first, second)]
        return text_result(request, " and ".join(texts))

    def view(self, offer: Offer) -> Offer:
        tool = {"name": self.name, "inputSchema": ANY}
        kept = offer.keep(tools=lambda name: name != "secret_add")
        return kept.adding(tools=[tool], shadow=self.shadow)


@ERAS
async def test_a_link_adds_a_tool_that_calls_what_it_hides(version: str) -> None:
    client = await client_of(shop([]), version, Twice())
    assert await client.names() == ["open_add", "twice"]
    assert await client.said("twice") == "secret add and open add"
    assert "error" in await client.request("tools/call", {"name": "secret_add"})


@ERAS
async def test_an_outer_link_cannot_call_what_an_inner_one_hides(version: str) -> None:
    reached: list[str] = []
    client = await client_of(shop(reached), version, Twice(), Hides())
    answer = await client.request("tools/call", {"name": "twice", "arguments": {}})
    assert answer["error"]["code"] == -32603
    assert reached == ["open add"]


class Shadows(Twice):
    name = "open_add"
    shadow = ("open_add",)


@ERAS
async def test_a_link_shadows_a_name_on_request(version: str) -> None:
    client = await client_of(shop([]), version, Shadows())
    assert await client.names() == ["open_add"]
    assert await client.said("open_add") == "secret add and open add"


class Clashes(Twice):
    name = "open_add"


def test_a_name_that_exists_is_rejected_at_the_start_with_both_named() -> None:
    words = "tool 'open_add' is offered by both 'shop' and the link 'Clashes'"
    with pytest.raises(NameClash, match=words) as raised:
        shop([]).endpoint([Clashes()])
    assert (raised.value.kind, raised.value.key) == ("tools", "open_add")


async def test_a_name_that_a_server_adds_later_is_hidden_and_reported_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = shop([])
    client = await client_of(server, LEGACY, Twice())
    server.add_tool({"name": "twice", "inputSchema": ANY}, lambda given: "newcomer")
    for other in ("one", "two"):
        assert await client.names() == ["open_add", "twice"]
        server.add_tool({"name": other, "inputSchema": ANY}, lambda given: "")
        server.remove_tool(other)
    assert await client.said("twice") == "secret add and open add"
    assert caplog.text.count("offered by both 'shop' and the link 'Twice'") == 1


class Breaks(Hides):
    def __init__(self) -> None:
        self.is_broken = True

    def view(self, offer: Offer) -> Offer:
        if self.is_broken:
            raise RuntimeError("a secret of ours")
        return offer


@ERAS
async def test_a_view_that_raises_shows_nothing_and_is_reported_once(
    version: str, caplog: pytest.LogCaptureFixture
) -> None:
    reached: list[str] = []
    link, server = Breaks(), shop(reached)
    client = Client(server.endpoint([link]), version)
    words = "the link 'Breaks' failed to filter the lists; see the server's log"
    for method, params in [("tools/list", None), *asks("open"), *asks("secret")]:
        answer = await client.request(method, params)
        assert answer["error"] == {"code": -32603, "message": words}, method
    assert reached == []
    assert caplog.text.count("RuntimeError: a secret of ours") == 1
    link.is_broken = False
    server.remove_tool("secret_add")  # the next catalog
    assert await client.names() == ["open_add"]


async def test_a_view_that_returns_no_offer_shows_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Forgets(Hides):
        def view(self, offer: Offer) -> Any:
            return None

    client = Client(shop([]).endpoint([Forgets()]), MODERN)
    assert (await client.request("tools/list"))["error"]["code"] == -32603
    assert "view returned NoneType, not an Offer" in caplog.text


@pytest.mark.parametrize(
    ("added", "words"),
    [
        ({"tools": [{"inputSchema": ANY}]}, "it has no 'name'"),
        ({"tools": [{"name": "x"}]}, "it has no inputSchema"),
        ({"resources": [{"name": "x"}]}, "it has no 'uri'"),
        ({"shadow": ["x"]}, "cannot shadow 'x'"),
    ],
)
def test_an_invalid_addition_is_rejected(added: dict[str, Any], words: str) -> None:
    with pytest.raises(RegistrationError, match=words):
        Offer().adding(**added)


def test_added_entries_come_last_and_keep_the_others() -> None:
    offer = Offer.of(tools=[{"name": "a"}], prompts=[{"name": "p"}])
    more = offer.adding(
        tools=[{"name": "b", "inputSchema": ANY}], resources=[{"uri": "memo://x", "name": "x"}]
    )
    assert more.listed("tools").keys == ("a", "b")
    assert more.listed("resources").keys == ("memo://x",)
    assert more.listed("prompts").keys == ("p",)


async def test_links_are_replaced_while_an_endpoint_serves() -> None:
    server = shop([])
    endpoint = server.endpoint()
    client = Client(endpoint, LEGACY)
    await client.hello()
    endpoint.relink([Hides()])
    assert await client.names() == ["open_add"]
    changed = [message["method"] for message in client.heard]
    assert changed == [
        f"notifications/{kind}/list_changed" for kind in ("tools", "prompts", "resources")
    ]
    client.heard.clear()
    endpoint.relink([Hides(), Hides()])
    assert client.heard == []
    with pytest.raises(NameClash):
        endpoint.relink([Clashes()])
    assert await client.names() == ["open_add"]
    endpoint.relink([])
    assert await client.names() == ["open_add", "secret_add"]


async def test_a_request_that_is_running_finishes_on_the_old_chain() -> None:
    began, going = asyncio.Semaphore(0), asyncio.Event()

    def slow(next: Handler) -> Handler:
        async def handle(request: Request, context: Context) -> Response:
            began.release()
            await going.wait()
            return await next(request, context)

        return handle

    endpoint = shop([]).endpoint([slow, Hides()])
    client = Client(endpoint, MODERN)
    call = asyncio.ensure_future(client.said("open_add"))
    hidden = asyncio.ensure_future(client.request("tools/call", {"name": "secret_add"}))
    await began.acquire()
    await began.acquire()
    endpoint.relink([])
    assert await client.said("secret_add") == "secret add"
    going.set()
    assert await call == "open add"
    assert (await hidden)["error"]["code"] == -32602


def test_a_request_for_another_tool_keeps_its_client() -> None:
    params = b'{"name":"a","arguments":{"x":1},"_meta":{"progressToken":7},"requestState":"s"}'
    request = Request(method="tools/call", id=b"3", name="a", params=params)
    request.set_version(Version.V2025_06_18)
    other = request.calling("b", {"y": 2})
    assert (other.id, other.name, other.version) == (b"3", "b", Version.V2025_06_18)
    assert other.decode() == {
        "name": "b",
        "arguments": {"y": 2},
        "_meta": {"progressToken": 7},
        "requestState": "s",
    }
    assert request.calling("b").decode()["arguments"] == {"x": 1}
