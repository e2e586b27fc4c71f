"""Every task has one idempotency key, which travels with each call that is made for it."""

import json
from pathlib import Path

import pytest

from portico.core.model.context import Context
from portico.core.model.message import Request, Response
from portico.core.model.types import LinkedEndpoint
from portico.core.protocol.eras import IDEMPOTENCY_KEY, legacy_params
from portico.library.tasks.mcp.task_call import stored_call, with_key
from portico.library.tasks.mcp.task_host import TaskHost
from portico.library.tasks.store.store import tasks_in_memory
from portico.library.tasks.worker.worker import TaskWorker
from tests.support.pairs import pairs
from tests.support.task_runners import ME, seen
from tests.tasks_protocol.doors import ERAS
from tests.tasks_protocol.follower import ABLE
from tests.tasks_protocol.gated import Gated
from tests.wrap.faults import until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("tasks-keys")]

BUDGETS: list[dict[str, float]] = [{}, {"sync_budget_s": 600}]
"""Of a server whose calls are never promoted, and of one whose calls may be."""


@pytest.mark.soak
@pytest.mark.parametrize(
    ("server", "era", "budget", "executes"), pairs(ERAS, ERAS, BUDGETS, [False, True]), ids=str
)
def test_the_key_of_a_servers_own_task_travels_with_its_call_and_when_it_is_resumed(
    tmp_path: Path, era: str, server: str, budget: dict[str, float], executes: bool
) -> None:
    gated = Gated(tmp_path, server, **budget)
    with gated.gateway() as gateway, gated.client(gateway, era) as client:
        client.executes = executes
        id = client.begin("work", gate=str(gated.gate))
        key = gated.record(id).idempotency_key
        assert gated.keys("work") == [key]
        gated.cancelled(id)
        new = gated.resumed(id)
        assert until(lambda: len(gated.keys("work")) == 2)
        gated.gate.touch()
        assert "done by" in str(client.outcome(new)["result"])
        assert gated.keys("work") == [key, key]
        assert gated.record(new).idempotency_key == key
        other = client.begin("work", gate=str(gated.gate))
        assert gated.keys("work")[2] == gated.record(other).idempotency_key != key


@pytest.mark.parametrize("server", ERAS)
@pytest.mark.parametrize("era", ERAS)
def test_the_key_of_a_promoted_call_travels_with_it_and_when_it_is_resumed(
    tmp_path: Path, era: str, server: str
) -> None:
    gated = Gated(tmp_path, server, sync_budget_s=0.1)
    able = ABLE if era == "modern" else {}  # a legacy client declares no tasks of this tool
    with gated.gateway() as gateway, gated.client(gateway, era, able) as client:
        call = client.call_of("hold", {"gate": str(gated.gate)})
        result = client.fetch("tools/call", call)["result"]
        id = result["taskId"] if era == "modern" else result["structuredContent"]["task_id"]
        key = gated.record(id).idempotency_key
        assert until(lambda: gated.keys("hold") == [key])  # the server may still start
        gated.cancelled(id)
        new = gated.resumed(id)
        assert until(lambda: len(gated.keys("hold")) == 2)
        gated.gate.touch()
        assert gated.ended(new).state == "completed"
        assert gated.keys("hold") == [key, key]


@pytest.mark.parametrize(
    "params",
    [
        '{"name":"a"}',
        ' { "name" : "a" } ',
        '{"name":"a","_meta":{"x":1},"arguments":{"y":2}}',
        '{"_meta": {"x":[1,{"_meta":2}]}, "name":"a"}',
        '{"name":"a","_meta":{}}',
        '{"name":"a","_meta":{ "x":1}}',
        '{"name":"a","arguments":{"_meta":{"x":1}}}',
        '{"name":"a","arguments":{"_meta":{"x":1}},"_meta":{"x":1}}',
        '{"name":"a","arguments":"\\"_meta\\":{","_meta":{"x":1}}',
        '{"name":"a","_m\\u0065ta":{"x":1}}',
        '{"name":"a","_meta":{"portico/idempotencyKey":"forged"}}',
    ],
)
def test_the_key_is_added_to_the_params_of_a_call_and_to_nothing_else(params: str) -> None:
    before = json.loads(params)
    keyed = with_key(params.encode(), "k")
    meta = {**before.get("_meta", {}), IDEMPOTENCY_KEY: "k"}
    assert json.loads(keyed) == {**before, "_meta": meta}
    assert keyed.count(b'"k"') == 1


KEY = "0123456789abcdef0123456789abcdef"
VERSION = "io.modelcontextprotocol/protocolVersion"


@pytest.mark.parametrize(
    ("meta", "left"),
    [
        ({VERSION: "2026-07-28"}, {}),
        ({VERSION: "2026-07-28", "x": 1}, {"x": 1}),
        ({"x": {IDEMPOTENCY_KEY: 1}, "progressToken": 7}, {"x": {IDEMPOTENCY_KEY: 1}}),
    ],
)
def test_a_server_of_the_other_era_gets_the_key_of_each_call(
    meta: dict[str, object], left: dict[str, object]
) -> None:
    params = json.dumps({"name": "a", "_meta": meta}, separators=(",", ":")).encode()
    for key in (KEY, KEY[::-1], "short"):
        sent = json.loads(legacy_params(with_key(params, key), b""))
        assert sent == {"name": "a", "_meta": {IDEMPOTENCY_KEY: key, **left}}


@pytest.mark.parametrize(
    "forged",
    [
        KEY[:-1] + r"\",x",
        KEY[:10] + '","x":"' + KEY[:15],
        KEY + '","' + IDEMPOTENCY_KEY + '":"again',
    ],
)
def test_a_client_that_forges_a_key_changes_nothing_but_its_own_metadata(forged: str) -> None:
    raw = f'{{"{IDEMPOTENCY_KEY}":"{forged}","{VERSION}":"2026-07-28","y":2}}'
    sent = json.loads(legacy_params(b'{"name":"a","_meta":%b}' % raw.encode(), b""))["_meta"]
    expected = json.loads(raw)
    del expected[VERSION]
    assert sent == expected
    assert json.dumps(sent).count(IDEMPOTENCY_KEY) == 1


async def test_the_key_of_a_stored_call_travels_with_each_attempt() -> None:
    keys: list[str] = []

    async def handler(request: Request, _: Context) -> Response:
        keys.append(request.decode()["_meta"][IDEMPOTENCY_KEY])
        error = b'{"code":-32603,"message":"failed"}'
        return Response(id=request.id, error=error, code=-32603)

    host = TaskHost(TaskWorker(tasks_in_memory))
    linked = LinkedEndpoint(handler, handler, None, lambda *_: b"", has_links=False)
    host.calls.find = {"main": linked}.get
    call = Request(method="tools/call", name="work", params=b'{"name":"work","_meta":{"x":1}}')
    input = stored_call("main", call, Context())
    first = await host.worker.submit(ME, host.call_kind, input)
    await seen(host.worker.store, first.id, lambda task: task.is_finished)
    second = await host.worker.store.resume(ME, first.id)
    assert second is not None
    host.worker.wake()
    await seen(host.worker.store, second.id, lambda task: task.is_finished)
    assert keys == [first.idempotency_key] * 2
    await host.worker.close()
