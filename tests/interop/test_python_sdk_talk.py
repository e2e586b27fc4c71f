"""Handlers talk with the official SDK's client while they work: the same calls in both eras."""

from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp.client.session import ClientRequestContext

from tests.interop.person import Person, text_of
from tests.interop.sdk import Heard, Way, code_of, raw

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("python-sdk-talk")]


async def test_progress_reaches_the_one_who_asked_for_it(way: Way) -> None:
    steps: list[tuple[float, float | None, str | None]] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        steps.append((progress, total, message))

    async with way.connect() as client:
        await client.call_tool("steps", progress_callback=on_progress)
        # The message came with 2025-03-26.
        told = way.version >= "2025-03-26"
        assert steps == [(n, 3, f"step {n}" if told else None) for n in (1, 2, 3)]
        await client.call_tool("steps")
        assert len(steps) == 3


async def test_log_messages_come_from_the_level_the_client_wants(way: Way) -> None:
    heard: list[tuple[str, Any]] = []

    async def on_log(params: types.LoggingMessageNotificationParams) -> None:
        heard.append((params.level, params.data))

    async with way.connect(logging_callback=on_log, log_level="warning") as client:
        if not way.modern:
            await raw(client.session, "logging/setLevel", level="warning")
        await client.call_tool("chatter")
    assert heard == [("warning", {"said": "warning"}), ("error", {"said": "error"})]


async def test_a_modern_request_that_sets_no_level_gets_no_log_messages(way: Way) -> None:
    heard: list[str] = []

    async def on_log(params: types.LoggingMessageNotificationParams) -> None:
        heard.append(params.level)

    async with way.connect(logging_callback=on_log) as client:
        if way.modern:
            code = await code_of(raw(client.session, "logging/setLevel", level="debug"))
            assert code == types.METHOD_NOT_FOUND
        await client.call_tool("chatter")
    # In the legacy era the server chooses until the client has.
    assert ("error" in heard) != way.modern


async def test_a_call_that_the_client_abandons_is_cancelled_in_the_handler(way: Way) -> None:
    token = f"{way.transport}-{way.version}"
    began = anyio.Event()

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        began.set()

    async with way.connect() as client, anyio.create_task_group() as tasks:

        async def wait_forever() -> None:
            await client.call_tool("wait_forever", {"token": token}, progress_callback=on_progress)

        tasks.start_soon(wait_forever)
        await began.wait()
        tasks.cancel_scope.cancel()
    async with way.connect() as client:
        # Over stdio the server went with its client; over HTTP it lives, and remembers.
        if way.transport != "stdio":
            assert await text_of(client, "was_cancelled", {"token": token}) == "it was"


async def test_other_calls_go_on_while_one_is_cancelled(way: Way) -> None:
    token = f"beside-{way.transport}-{way.version}"
    began = anyio.Event()

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        began.set()

    async with way.connect() as client:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:

                async def wait_then_cancel() -> None:
                    await began.wait()
                    assert await text_of(client, "text") == "plain"
                    scope.cancel()

                tasks.start_soon(wait_then_cancel)
                await client.call_tool(
                    "wait_forever", {"token": token}, progress_callback=on_progress
                )
        assert scope.cancelled_caught
        assert await text_of(client, "was_cancelled", {"token": token}) == "it was"


async def test_a_form_is_filled_in_by_the_person(way: Way) -> None:
    person = Person()
    async with way.connect(**person.callbacks) as client:
        answer = await text_of(client, "ask_name")
    if way.version < "2025-06-18":  # which is where elicitation begins
        assert answer.startswith("error: ")
        assert person.asked == []
    else:
        assert answer == "accept: Ada"
        (form,) = person.asked
        assert form.message == "Your name?"


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_person_may_say_no(way: Way, action: str) -> None:
    person = Person(action)
    async with way.connect(**person.callbacks) as client:
        answer = await text_of(client, "ask_name")
    refused = way.version < "2025-06-18"
    assert answer.startswith("error: ") if refused else answer == f"{action}: None"


async def test_a_page_to_visit_is_shown_to_the_person(way: Way) -> None:
    person = Person()
    async with way.connect(**person.callbacks) as client:
        answer = await text_of(client, "ask_visit")
    if way.version < "2025-11-25":  # which is where URL mode begins
        assert answer.startswith("error: ")
        assert person.asked == []
    else:
        assert answer == "accept"
        assert person.asked[0].url == "https://example.com/in"


async def test_the_clients_model_is_asked(way: Way) -> None:
    person = Person()
    async with way.connect(**person.callbacks) as client:
        assert await text_of(client, "ask_model", {"prompt": "6 * 7"}) == "tiny: 42"
    assert person.asked[0].max_tokens == 10


async def test_the_clients_roots_are_listed(way: Way) -> None:
    person = Person()
    async with way.connect(**person.callbacks) as client:
        assert await text_of(client, "ask_roots") == "file:///work"


async def test_several_questions_are_put_at_once(way: Way) -> None:
    person = Person()
    async with way.connect(**person.callbacks) as client:
        answer = await text_of(client, "ask_all")
    if way.version < "2025-06-18":
        assert answer.startswith("error: ")
    else:
        assert answer == "model name roots"
        assert len(person.asked) == 3


async def test_a_prompt_may_ask_as_well(way: Way) -> None:
    person = Person()
    async with way.connect(**person.callbacks) as client:
        if way.version < "2025-06-18":
            assert await code_of(client.get_prompt("interview"))
        else:
            prompt = await client.get_prompt("interview")
            assert "Interview Ada." in str(prompt.messages[0].content)


async def test_a_client_that_cannot_answer_is_never_asked(way: Way) -> None:
    async with way.connect() as client:
        for tool in ("ask_name", "ask_roots"):
            if way.modern:
                assert await code_of(client.call_tool(tool)) == -32021
            else:
                assert (await text_of(client, tool)).startswith("error: ")


async def test_a_client_that_fails_to_answer_fails_only_that_call(way: Way) -> None:
    async def broken(context: ClientRequestContext) -> types.ErrorData:
        return types.ErrorData(code=-1, message="no roots today")

    heard = Heard()
    async with way.connect(list_roots_callback=broken, message_handler=heard) as client:
        if way.modern:
            # The client sends no answer; its own driver raises the callback's error.
            assert await code_of(client.call_tool("ask_roots")) == -1
        else:
            assert "no roots today" in await text_of(client, "ask_roots")
        assert await text_of(client, "text") == "plain"
