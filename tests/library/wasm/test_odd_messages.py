"""Odd requests and odd results pass typed middleware, or fail alone, with the reason."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from portico import Context, Offer, Request, Response, Server
from portico.library.chain.endpoint import ChainEndpoint
from portico.library.components.handler_link import HandlerLink
from portico.library.components.handler_worker import HandlerWorker
from tests.library.wasm import building, hosting

ODD_RESULT = b'{ "content":[ ],"b":1.50, "a" : "\\u00e9",  "b2":[ ]}'


class Exact:
    """Answers with these bytes, and keeps the params that arrive."""

    name = "exact"

    def __init__(self, result: bytes) -> None:
        self._result = result
        self.seen: list[bytes] = []

    def offer(self) -> Offer:
        return Offer.of(tools=[{"name": "odd", "inputSchema": {"type": "object"}}])

    def watch(self, changed: Any) -> None:
        pass

    def provide(self, request: Request, context: Context) -> Any:
        self.seen.append(request.params)
        return Response(id=request.id, result=self._result)


@asynccontextmanager
async def endpoint(exact: Exact, folder: Path) -> AsyncIterator[ChainEndpoint]:
    file = building.javascript("typed_noop.js", building.WIT / "v20251125", "middleware")
    settings = hosting.settings(file, folder)
    await hosting.compiled(settings)
    link = HandlerLink("guest", lambda: HandlerWorker(hosting.command(settings)))
    yield Server.compose("odd", exact).endpoint([link])
    link.worker.stop()
    await link.worker.stopped()


async def answered(at: ChainEndpoint, params: bytes, id: bytes = b"1") -> Response:
    request = Request(method="tools/call", id=id, name="odd", params=params)
    answer = at.handle(request, Context())
    return answer if isinstance(answer, Response) else await answer


async def test_bytes_of_params_results_and_ids_stay_as_they_were(tmp_path: Path) -> None:
    exact = Exact(ODD_RESULT)
    params = b'{ "name":"odd",  "z":1e2, "arguments": {"x" :"\\u00e9", "y":1.0}, "_meta":{"p": 1}}'
    ids = (b'"o\\u0064d"', b"1.5", b"-0", b"123456789012345678901234567890", b'""')
    async with endpoint(exact, tmp_path) as at:
        for id in ids:
            answer = await answered(at, params, id)
            assert (answer.id, answer.result) == (id, ODD_RESULT)
    assert exact.seen == [params] * len(ids)


async def test_params_that_no_type_has_fail_their_request_only(tmp_path: Path) -> None:
    exact = Exact(ODD_RESULT)
    deep = b'{"name":"odd","arguments":' + b'{"a":' * 5000 + b"1" + b"}" * 5000 + b"}"
    async with endpoint(exact, tmp_path) as at:
        assert b"nested deeper than" in (await answered(at, deep)).error
        assert b"invalid params of tools/call" in (await answered(at, b'{"name":["odd"]}')).error
        assert (await answered(at, b'{"name":"odd"}')).result == ODD_RESULT
    assert exact.seen == [b'{"name":"odd"}']


@pytest.mark.parametrize(
    "result",
    [b'{"content":5}', b'{"content":[5]}', b'{"content":[{"type":"text"}]}', b"{}", b"[]"],
)
async def test_results_that_no_type_has_fail_their_request_only(
    result: bytes, tmp_path: Path
) -> None:
    async with endpoint(Exact(result), tmp_path) as at:
        answers = await asyncio.gather(*(answered(at, b'{"name":"odd"}') for _ in range(3)))
    for answer in answers:
        assert b"which its types cannot express" in answer.error
