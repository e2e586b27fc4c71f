"""Clients of the official SDK are notified of changes, directly or by a listen stream."""

import anyio
import mcp_types as types
import pytest
from mcp.client.subscriptions import (
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ToolsListChanged,
)

from tests.interop.sdk import WAYS, Heard, Way, code_of, raw

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("python-sdk-changes")]

KINDS = {
    "tools": (types.ToolListChangedNotification, ToolsListChanged),
    "prompts": (types.PromptListChangedNotification, PromptsListChanged),
    "resources": (types.ResourceListChangedNotification, ResourcesListChanged),
}


@pytest.mark.parametrize("kind", KINDS)
async def test_a_changed_list_is_announced_and_then_read_anew(way: Way, kind: str) -> None:
    legacy, modern = KINDS[kind]
    heard = Heard()
    async with way.connect(message_handler=heard) as client:
        if way.modern:
            async with client.listen(**{f"{kind}_list_changed": True}) as events:  # type: ignore[arg-type]  # the kind decides
                for change in ("grow", "shrink"):
                    await client.call_tool(change, {"kind": kind})
                    assert await anext(events) == modern()
        else:
            for change in ("grow", "shrink"):
                await client.call_tool(change, {"kind": kind})
                await heard.next(legacy)


async def test_a_new_tool_can_be_called_as_soon_as_it_is_announced(way: Way) -> None:
    async with way.connect() as client:
        await client.call_tool("grow", {"kind": "tools"})
        try:
            assert not (await client.call_tool("grown")).is_error
        finally:
            await client.call_tool("shrink", {"kind": "tools"})
        assert await code_of(client.call_tool("grown")) == types.INVALID_PARAMS


async def test_a_subscribed_resource_tells_of_its_updates(way: Way) -> None:
    heard = Heard()
    async with way.connect(message_handler=heard) as client:
        if way.modern:
            async with client.listen(resource_subscriptions=["note://one"]) as events:
                await client.call_tool("touch", {"uri": "note://two"})
                await client.call_tool("touch", {"uri": "note://one"})
                assert await anext(events) == ResourceUpdated(uri="note://one")
        else:
            await raw(client.session, "resources/subscribe", uri="note://one")
            await client.call_tool("touch", {"uri": "note://two"})
            await client.call_tool("touch", {"uri": "note://one"})
            updated = await heard.next(types.ResourceUpdatedNotification)
            assert updated.params.uri == "note://one"


async def test_a_resource_that_is_no_longer_subscribed_is_silent(way: Way) -> None:
    heard = Heard()
    async with way.connect(message_handler=heard) as client:
        if way.modern:
            async with client.listen(resource_subscriptions=["note://one"]):
                pass  # leaving the stream is how a modern client unsubscribes
            await client.call_tool("text")  # by its answer the SDK has unsubscribed
        else:
            await raw(client.session, "resources/subscribe", uri="note://one")
            await raw(client.session, "resources/unsubscribe", uri="note://one")
            await raw(client.session, "resources/subscribe", uri="note://two")
        await client.call_tool("touch", {"uri": "note://one"})
        if not way.modern:
            await client.call_tool("touch", {"uri": "note://two"})
            updated = await heard.next(types.ResourceUpdatedNotification)
            assert updated.params.uri == "note://two"
        assert heard.nothing_more(types.ResourceUpdatedNotification)


async def test_what_one_era_has_the_other_refuses(way: Way) -> None:
    async with way.connect() as client:
        if way.modern:
            for method in ("resources/subscribe", "resources/unsubscribe"):
                code = await code_of(raw(client.session, method, uri="note://one"))
                assert code == types.METHOD_NOT_FOUND
        else:
            listen = raw(client.session, "subscriptions/listen", notifications={})
            assert await code_of(listen) in (types.METHOD_NOT_FOUND, types.INVALID_PARAMS)
            unknown = raw(client.session, "resources/subscribe", uri="note://nobody")
            assert await code_of(unknown) == -32002


# Over stdio one process serves one client.
@pytest.mark.parametrize("way", [w for w in WAYS if w[0] != "stdio"], indirect=True, ids="-".join)
async def test_two_clients_are_each_told(way: Way) -> None:
    first, second = Heard(), Heard()
    async with (
        way.connect(message_handler=first) as one,
        way.connect(message_handler=second) as two,
    ):
        if way.modern:
            async with (
                one.listen(tools_list_changed=True) as a,
                two.listen(tools_list_changed=True) as b,
            ):
                await one.call_tool("grow", {"kind": "tools"})
                assert [await anext(a), await anext(b)] == [ToolsListChanged()] * 2
        else:
            await one.call_tool("grow", {"kind": "tools"})
            async with anyio.create_task_group() as tasks:
                for heard in (first, second):
                    tasks.start_soon(heard.next, types.ToolListChangedNotification)
        await one.call_tool("shrink", {"kind": "tools"})
