"""Links that ask: each has its own questions, in both eras, and no answer is another's."""

import asyncio
import json
from collections.abc import Callable
from typing import Any, Literal

import msgspec
import pytest

from examples.approve import Approve
from portico import (
    Answer,
    Context,
    Elicited,
    Handler,
    Link,
    McpError,
    Offer,
    Request,
    Response,
    Server,
    hooks,
)
from portico.core.model.errors import AskError
from portico.core.model.session import Session
from portico.core.model.types import Change
from portico.core.model.version import Version
from portico.core.protocol.codec import encode
from portico.core.protocol.inbound import read
from portico.library.chain.endpoint import ChainEndpoint
from portico.library.tasks.store.store import tasks_in_memory
from tests.library.chain.test_tasks_behind_links import LEGACY, Caller
from tests.support.messages import MODERN, modern
from tests.support.running import WAIT_S
from tests.support.task_runners import seen

Era = Literal["modern", "legacy"]
ERAS = pytest.mark.parametrize("era", ["modern", "legacy"])
ABLE: dict[str, Any] = {"elicitation": {"form": {}}}
YES: dict[str, Any] = {"action": "accept", "content": {}}
KEY = "same"


def asking(name: str, key: str | None = KEY) -> Link:
    """A link that asks one question before each call."""

    def link(next: Handler) -> Handler:
        async def ask(request: Request, context: Context) -> Response:
            if not (await context.elicit(f"{name}?", {}, key=key)).accepted:
                raise McpError(f"{name} refused", code=-31000)
            return await next(request, context)

        def handle(request: Request, context: Context) -> Answer:
            return (
                ask(request, context) if request.method == "tools/call" else next(request, context)
            )

        return handle

    link.__name__ = name
    return link


def shop(ran: list[str], **options: Any) -> Server:
    """A server whose tool asks with the key that the links use."""
    server = Server("shop", **options)

    @server.tool
    async def buy(item: str, context: Context) -> str:
        """Buy an item."""
        ran.append(item)
        return f"{item}: {(await context.elicit('tool?', {}, key=KEY)).action}"

    @server.tool(task=True)
    async def order(item: str) -> str:
        """Order an item."""
        ran.append(item)
        return f"ordered {item}"

    return server


class Person:
    """Answers questions, and keeps them."""

    def __init__(self, *answers: str) -> None:
        self.asked: list[str] = []
        self._answers = list(answers)

    def __call__(self, params: dict[str, Any]) -> Elicited[dict[str, Any]]:
        self.asked.append(params["message"])
        return Elicited(self._answers.pop(0) if self._answers else "accept", {})


@ERAS
async def test_two_links_and_a_tool_with_the_same_key_all_ask(era: Era) -> None:
    person, links = Person(), [asking("first"), asking("second")]
    async with shop([]).test_client(era=era, links=links, elicit=person) as client:
        assert (await client.call_tool("buy", {"item": "tea"})).text == "tea: accept"
    assert person.asked == ["[first] first?", "[second] second?", "tool?"]


@ERAS
async def test_no_answer_serves_two_questions_of_one_link_with_one_key(era: Era) -> None:
    ran: list[str] = []

    def link(next: Handler) -> Handler:
        async def handle(request: Request, context: Context) -> Response:
            if request.method == "tools/call":
                await context.elicit("once?", {}, key=KEY)
                await context.elicit("twice?", {}, key=KEY)
            return await next(request, context)

        return handle

    link.__name__ = "twin"
    person = Person()
    async with shop(ran).test_client(era=era, links=[link], elicit=person) as client:
        if era == "legacy":  # it waits for each answer
            await client.call_tool("order", {"item": "tea"})
        else:
            with pytest.raises(McpError, match="give each a key of its own"):
                await client.call_tool("order", {"item": "tea"})
    both = ["[twin] once?", "[twin] twice?"]
    assert person.asked == (both if era == "legacy" else both[:1])
    assert ran == (["tea"] if era == "legacy" else [])


@ERAS
async def test_the_same_link_twice_asks_twice(era: Era) -> None:
    person, link = Person(), asking("twin", key=None)
    async with shop([]).test_client(era=era, links=[link, link], elicit=person) as client:
        await client.call_tool("order", {"item": "tea"})
    assert person.asked == ["[twin] twin?"] * 2


@ERAS
@pytest.mark.parametrize("action", ["decline", "cancel"])
@pytest.mark.parametrize("refuses", [1, 2])
async def test_a_refusal_ends_the_call_before_the_tool(era: Era, action: str, refuses: int) -> None:
    ran: list[str] = []
    person = Person(*["accept"] * (refuses - 1), action)
    links = [asking("first"), asking("second")]
    async with shop(ran).test_client(era=era, links=links, elicit=person) as client:
        with pytest.raises(McpError, match="refused"):
            await client.call_tool("order", {"item": "tea"})
    assert (len(person.asked), ran) == (refuses, [])


@ERAS
async def test_a_client_that_cannot_ask_gets_a_clear_refusal(era: Era) -> None:
    ran: list[str] = []
    async with shop(ran).test_client(era=era, links=[asking("gate")]) as client:
        with pytest.raises(McpError, match="requires the elicitation capability"):
            await client.call_tool("order", {"item": "tea"})
    assert ran == []


@ERAS
async def test_links_sample_and_list_roots(era: Era) -> None:
    def link(next: Handler) -> Handler:
        async def handle(request: Request, context: Context) -> Response:
            if request.method == "tools/call":
                said = await context.sample("which?")
                roots = await context.roots()
                call = request.calling("order", {"item": f"{said['model']} {roots[0]['uri']}"})
                return await next(call, context)
            return await next(request, context)

        return handle

    def sample(params: dict[str, Any]) -> dict[str, Any]:
        assert "[link]" in params["systemPrompt"]
        content = {"type": "text", "text": "green"}
        return {"role": "assistant", "model": "m", "content": content}

    roots = [{"uri": "file:///a"}]
    async with shop([]).test_client(era=era, links=[link], sample=sample, roots=roots) as client:
        assert (await client.call_tool("order", {"item": "tea"})).text == "ordered m file:///a"


@ERAS
async def test_hooks_ask_too(era: Era) -> None:
    async def on_call(call: Any, next: Callable[[Any], Answer]) -> Response:
        answer = await call.context.elicit("hook?", {})
        call.arguments["item"] += f" {answer.action}"
        return await next(call)

    person = Person()
    links = [hooks(on_call=on_call), asking("inner")]
    async with shop([]).test_client(era=era, links=links, elicit=person) as client:
        found = await client.call_tool("order", {"item": "tea"})
    assert found.text == "ordered tea accept"
    assert len(person.asked) == 2


@ERAS
async def test_each_link_has_its_own_state(era: Era) -> None:
    seen_states: list[dict[str, Any]] = []

    def noting(name: str) -> Link:
        def link(next: Handler) -> Handler:
            async def handle(request: Request, context: Context) -> Response:
                if request.method != "tools/call":
                    return await next(request, context)
                context.state.setdefault("by", name)
                await context.elicit(f"{name}?", {})
                seen_states.append(dict(context.state))
                return await next(request, context)

            return handle

        link.__name__ = name
        return link

    async with shop([]).test_client(
        era=era, links=[noting("a"), noting("b")], elicit=Person()
    ) as client:
        await client.call_tool("order", {"item": "tea"})
    assert seen_states[-2:] == [{"by": "a"}, {"by": "b"}]


class Modern:
    """A modern client that sends each round itself."""

    def __init__(self, endpoint: ChainEndpoint, principal: str = "local") -> None:
        self._endpoint = endpoint
        self._principal = principal

    async def send(self, tool: str = "order", **more: Any) -> dict[str, Any]:
        """The answer to one round of a call."""
        arguments = more.pop("arguments", {"item": "tea"})
        params = {"name": tool, "arguments": arguments, **more}
        made = read(encode(modern("tools/call", params, ABLE)), None, None)
        assert isinstance(made, Request)
        context = Context(principal=self._principal)
        answer: dict[str, Any] = (await self._endpoint.handle(made, context)).decode()
        return answer

    async def state(self, **more: Any) -> str:
        """The state of a call that asks."""
        found: str = (await self.send(**more))["result"]["requestState"]
        return found


def refusal(answer: dict[str, Any]) -> str:
    message: str = answer["error"]["message"]
    return message


async def test_a_state_that_was_cut_altered_or_is_of_another_call_or_client_is_refused() -> None:
    ran: list[str] = []
    endpoint = shop(ran).endpoint([asking("gate")])
    client = Modern(endpoint)
    state = await client.state()
    given: dict[str, Any] = {"inputResponses": {KEY: YES}}
    other = Modern(endpoint, "somebody")
    middle = len(state) // 2
    altered = state[:middle] + ("A" if state[middle] != "A" else "B") + state[middle + 1 :]
    for bad in (state[:-4], altered, "portico-links-1.", "portico-links-0." + state[16:]):
        answer = await client.send(**given, requestState=bad)
        assert "result" not in answer or answer["result"]["resultType"] == "input_required"
    assert "start over" in refusal(await client.send(**given, requestState=state[:-4]))
    assert "start over" in refusal(await other.send(**given, requestState=state))
    another = await client.send(**given, requestState=state, arguments={"item": "gold"})
    assert "start over" in refusal(another)
    assert ran == []
    assert (await client.send(**given, requestState=state))["result"]["resultType"] == "complete"
    assert ran == ["tea"]


async def test_answers_without_a_state_approve_nothing() -> None:
    ran: list[str] = []
    client = Modern(shop(ran).endpoint([asking("gate")]))
    answer = await client.send(inputResponses={KEY: YES, "elicitation-1": YES})
    assert answer["result"]["resultType"] == "input_required"
    assert ran == []


async def test_an_answer_to_one_link_is_no_answer_to_another() -> None:
    ran: list[str] = []
    client = Modern(shop(ran).endpoint([asking("first"), asking("second", "other")]))
    state = await client.state()
    given = {KEY: YES, "other": YES, "elicitation-1": YES}
    answer = await client.send(inputResponses=given, requestState=state)
    assert list(answer["result"]["inputRequests"]) == ["other"]
    assert ran == []
    state = answer["result"]["requestState"]
    answer = await client.send(inputResponses={KEY: YES}, requestState=state)
    assert list(answer["result"]["inputRequests"]) == ["other"]
    state = answer["result"]["requestState"]
    done = await client.send(inputResponses={"other": YES}, requestState=state)
    assert done["result"]["resultType"] == "complete"


async def test_a_link_that_asks_for_ever_is_ended() -> None:
    rounds: list[int] = []

    def link(next: Handler) -> Handler:
        async def handle(request: Request, context: Context) -> Response:
            number = context.state.get("n", 0)
            context.state["n"] = number + 1
            rounds.append(number)
            await context.elicit("and now?", {}, key=f"q{number}")
            return await next(request, context)

        return handle

    client = Modern(shop([]).endpoint([link]))
    answer = await client.send()
    while "result" in answer:
        (key,) = answer["result"]["inputRequests"]
        state = answer["result"]["requestState"]
        answer = await client.send(inputResponses={key: YES}, requestState=state)
    assert "still requires input after 20 rounds" in refusal(answer)
    assert len(rounds) <= 22


@ERAS
async def test_a_link_that_asks_after_the_call_never_makes_it_twice(era: Era) -> None:
    ran: list[str] = []

    def link(next: Handler) -> Handler:
        async def handle(request: Request, context: Context) -> Response:
            response = await next(request, context)
            if request.method == "tools/call":
                await context.elicit("too late?", {})
            return response

        return handle

    person = Person()
    async with shop(ran).test_client(era=era, links=[link], elicit=person) as client:
        if era == "legacy":  # it waits for the answer
            await client.call_tool("order", {"item": "tea"})
        else:
            with pytest.raises(McpError, match="internal error"):
                await client.call_tool("order", {"item": "tea"})
    assert ran == ["tea"]
    assert person.asked == (["[link] too late?"] if era == "legacy" else [])


@ERAS
async def test_a_link_cannot_ask_once_its_call_is_answered(era: Era) -> None:
    failures: list[BaseException] = []
    begun = asyncio.Event()
    tasks: list[asyncio.Task[None]] = []

    def link(next: Handler) -> Handler:
        async def late(context: Context) -> None:
            await begun.wait()
            try:
                await context.elicit("still there?", {})
            except RuntimeError as error:
                failures.append(error)

        async def handle(request: Request, context: Context) -> Response:
            if request.method == "tools/call":
                tasks.append(asyncio.create_task(late(context)))
            return await next(request, context)

        return handle

    person = Person()
    async with shop([]).test_client(era=era, links=[link], elicit=person) as client:
        await client.call_tool("order", {"item": "tea"})
        begun.set()
        await asyncio.gather(*tasks)
    assert person.asked == []
    assert "was answered" in str(failures[-1])


class Desk:
    """A legacy client whose person never answers, or that has left."""

    def __init__(self, *, is_gone: bool = False) -> None:
        self.asked = asyncio.Event()
        self.is_withdrawn = False
        self._is_gone = is_gone

    async def notify(self, message: bytes) -> None:
        raise AssertionError(message)

    async def ask(self, method: str, params: bytes) -> bytes:
        self.asked.set()
        if self._is_gone:
            raise AskError("the client has left")
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            self.is_withdrawn = True
            raise
        return b""

    async def closed(self) -> None:
        await asyncio.get_running_loop().create_future()

    def call(self, endpoint: ChainEndpoint) -> "asyncio.Future[Response]":
        """Begin a call."""
        session = Session(lambda _: None)
        session.version, session.capabilities = Version.V2025_11_25, {"elicitation": {}}
        params = b'{"name":"order","arguments":{"item":"tea"}}'
        made = Request(method="tools/call", id=b"1", name="order", params=params)
        context = Context(session=session, peer=self)
        return asyncio.ensure_future(endpoint.handle(made, context))


async def test_a_client_that_leaves_withdraws_the_question_and_nothing_is_called() -> None:
    ran: list[str] = []
    endpoint = shop(ran).endpoint([asking("gate")])
    desk = Desk()
    async with asyncio.timeout(WAIT_S):
        calling = desk.call(endpoint)
        await desk.asked.wait()
        calling.cancel()
        await asyncio.wait({calling})
        gone = await Desk(is_gone=True).call(endpoint)
    assert desk.is_withdrawn
    assert gone.decode()["error"]["message"] == "gate: the client has left"
    assert ran == []


async def test_a_link_may_stop_waiting_for_an_answer() -> None:
    ran: list[str] = []

    def link(next: Handler) -> Handler:
        async def handle(request: Request, context: Context) -> Response:
            try:
                async with asyncio.timeout(0):
                    await context.elicit("quick?", {})
            except TimeoutError:
                raise McpError("nobody answered in time", code=-31000) from None
            return await next(request, context)

        return handle

    desk = Desk()
    async with asyncio.timeout(WAIT_S):
        refused = await desk.call(shop(ran).endpoint([link]))
    assert refused.decode()["error"]["message"] == "nobody answered in time"
    assert (desk.is_withdrawn or not desk.asked.is_set(), ran) == (True, [])


class Asking:
    """A provider whose tool asks twice, with states of its own."""

    name = "asking"
    states = (r'"caf\u00e9 \/ portico-links-1."', '"second"')

    def __init__(self) -> None:
        self.got: list[tuple[bytes, bytes]] = []

    def offer(self) -> Offer:
        tool = {"name": "quiz", "inputSchema": {"type": "object"}}
        return Offer().adding(tools=[tool])

    def watch(self, changed: Callable[[Change], None]) -> None:
        pass

    def provide(self, request: Request, context: Context) -> Answer | None:
        if request.method != "tools/call":
            return None
        fields = msgspec.json.decode(request.params, type=dict[str, msgspec.Raw])
        state = bytes(fields.get("requestState", b""))
        self.got.append((state, bytes(fields.get("inputResponses", b""))))
        done = b'{"content":[],"resultType":"complete"}'
        asks = {"q": {"method": "elicitation/create", "params": {"message": "?"}}}
        for before, after in zip(("", *self.states), self.states, strict=False):
            if state.decode() == before:
                result = {"resultType": "input_required", "inputRequests": asks}
                raw = json.dumps(result)[:-1] + f',"requestState":{after}}}'
                return Response(id=request.id, result=raw.encode())
        return Response(id=request.id, result=done)


async def test_a_server_gets_back_its_own_state_and_its_own_answers_only() -> None:
    provider = Asking()
    server = Server("host")
    server.include(provider)
    client = Modern(server.endpoint([asking("gate", "q")]))
    answer = await client.send("quiz")
    for action in ("accept", "decline", "cancel"):
        state = answer["result"]["requestState"]
        given = {"q": {"action": action}}
        answer = await client.send("quiz", inputResponses=given, requestState=state)
        if answer["result"]["resultType"] == "complete":
            break
    empty = b""
    assert [state for state, _ in provider.got] == [
        empty,
        *[state.encode() for state in Asking.states],
    ]
    assert [json.loads(given) for _, given in provider.got[1:]] == [
        {"q": {"action": "decline"}},
        {"q": {"action": "cancel"}},
    ]
    assert provider.got[0][1] == empty


@ERAS
async def test_in_a_task_a_link_waits_for_the_answer(era: Era) -> None:
    ran: list[str] = []
    store = tasks_in_memory()
    server = shop(ran, tasks=store)
    endpoint = server.endpoint([asking("gate")])
    client = Caller(endpoint, MODERN if era == "modern" else LEGACY, store, able=ABLE)
    async with server.running(), asyncio.timeout(WAIT_S):
        id = await client.begin("order", item="tea")
        task = await seen(store, id, lambda task: task.pending)
        (question,) = task.pending
        assert "[gate] gate?" in question.body.decode()
        assert ran == []
        await store.answer("local", id, {question.key: encode(YES)})
        await seen(store, id, lambda task: task.is_finished)
        assert ran == ["tea"]
        assert "ordered tea" in json.dumps(await client.ended(id))


async def test_an_approval_is_asked_for_tools_that_may_change_something() -> None:
    server = Server("mixed")

    @server.tool(annotations={"readOnlyHint": True})
    async def look() -> str:
        """Look."""
        return "seen"

    @server.tool
    async def write(text: str) -> str:
        """Write."""
        return f"wrote {text}"

    person = Person("accept", "decline")
    async with server.test_client(links=[Approve()], elicit=person) as client:
        assert (await client.call_tool("look")).text == "seen"
        assert (await client.call_tool("write", {"text": "a"})).text == "wrote a"
        with pytest.raises(McpError, match="a person did not approve it"):
            await client.call_tool("write", {"text": "b"})
    assert person.asked == [f'[Approve] Call write with {{"text": "{it}"}}?' for it in "ab"]
