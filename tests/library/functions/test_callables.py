"""Functions in other clothes: decorated, with arguments bound, objects that are called."""

import asyncio
import threading
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import pytest

from portico import Context, RegistrationError, Server
from tests.support.messages import call, request, result

WAIT_S = 20.0


def plainly(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator as people write them: it is not async itself."""

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


async def double(a: int, context: Context) -> int:
    await context.log("info", "doubling")
    return 2 * a


class Doubler:
    async def __call__(self, a: int, context: Context) -> int:
        return await double(a, context)


@pytest.mark.parametrize("function", [plainly(double), partial(double), Doubler()])
def test_an_async_function_behind_a_plain_one_awaits_its_context(
    function: Callable[..., Any],
) -> None:
    server = Server("demo")
    server.tool(function, name="double")
    found: list[Any] = []

    # In a thread, since an event loop that waits for itself waits for ever.
    def ask() -> None:
        answer = asyncio.run(call(server, "double", {"a": 4}))
        found.append(answer["structuredContent"])

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(WAIT_S)
    assert found == [{"result": 8}]


async def test_an_object_that_is_called_is_called_as_it_was_described() -> None:
    class Both:
        def __call__(self, a: int) -> int:
            return a + 1

        def call(self, arguments: dict[str, Any]) -> str:
            return "the handler of a definition"

    server = Server("demo")
    server.tool(Both(), name="derived")
    server.add_tool({"name": "defined", "inputSchema": {"type": "object"}}, Both())

    derived = await call(server, "derived", {"a": 1})
    defined = await call(server, "defined", {})
    assert derived["structuredContent"] == {"result": 2}
    assert defined["content"][0]["text"] == "the handler of a definition"


def test_a_function_that_does_not_say_what_it_takes_is_refused() -> None:
    server = Server("demo")
    with pytest.raises(RegistrationError, match="max"):
        server.add_tool({"name": "most", "inputSchema": {"type": "object"}}, max)
    with pytest.raises(RegistrationError, match="max"):
        server.completion("prompt", "argument")(max)


def with_a_limit(value: str, *, limit: int = 1) -> list[str]:
    return ["Oslo", "Omsk"][:limit]


def with_all(*given: Any) -> list[str]:
    return [str(len(given))]


@pytest.mark.parametrize(("function", "values"), [(with_a_limit, ["Oslo"]), (with_all, ["2"])])
async def test_a_completer_gets_what_it_takes_by_position(
    function: Callable[..., Any], values: list[str]
) -> None:
    server = Server("demo")
    server.prompt(lambda city: city, name="pack")
    server.completion("pack", "city")(function)
    params = {
        "ref": {"type": "ref/prompt", "name": "pack"},
        "argument": {"name": "city", "value": "O"},
    }
    answer = await result(server, request("completion/complete", params))
    assert answer["completion"]["values"] == values
