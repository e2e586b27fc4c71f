"""An agent on the official Python SDK of ACP, as an independent peer."""

import asyncio
from typing import Any

import acp
from acp import schema

OPTIONS = [
    schema.PermissionOption(option_id="always", name="Always", kind="allow_always"),
    schema.PermissionOption(option_id="once", name="Once", kind="allow_once"),
    schema.PermissionOption(option_id="no", name="No", kind="reject_once"),
]


class SdkAgent:
    """Does what the first word of its prompt says."""

    def __init__(self) -> None:
        self.client: Any = None
        self.cancelled = asyncio.Event()

    def on_connect(self, client: Any) -> None:
        self.client = client

    async def initialize(self, protocol_version: int, **_: Any) -> acp.InitializeResponse:
        return acp.InitializeResponse(
            protocol_version=protocol_version,
            agent_capabilities=schema.AgentCapabilities(load_session=True),
            agent_info=schema.Implementation(name="sdk", version="1"),
        )

    async def new_session(self, cwd: str, **_: Any) -> acp.NewSessionResponse:
        return acp.NewSessionResponse(session_id="sdk-1")

    async def load_session(self, session_id: str, **_: Any) -> acp.LoadSessionResponse:
        await self.say(session_id, "history")
        return acp.LoadSessionResponse()

    async def set_session_mode(self, session_id: str, mode_id: str, **_: Any) -> None:
        await self.say(session_id, "mode")

    async def cancel(self, session_id: str, **_: Any) -> None:
        self.cancelled.set()

    async def say(self, session: str, text: str) -> None:
        await self.client.session_update(session, acp.update_agent_message_text(text))

    async def prompt(self, session_id: str, prompt: list[Any], **_: Any) -> acp.PromptResponse:
        word, _, rest = prompt[-1].text.partition(" ")
        await getattr(self, f"do_{word}")(session_id, rest)
        if self.cancelled.is_set():
            return acp.PromptResponse(stop_reason="cancelled")
        return acp.PromptResponse(stop_reason="end_turn")

    async def do_echo(self, session: str, rest: str) -> None:
        call = acp.start_tool_call("call-1", "echo it", kind="execute", status="pending")
        await self.client.session_update(session, call)
        await self.say(session, rest)

    async def do_permit(self, session: str, rest: str) -> None:
        call = schema.ToolCallUpdate(tool_call_id="call-1", title="write", kind="edit")
        answer = await self.client.request_permission(session, call, OPTIONS)
        await self.say(session, answer.outcome.model_dump_json(by_alias=True))

    async def do_write(self, session: str, path: str) -> None:
        await self.client.write_text_file(session, path, "written by the SDK")
        read = await self.client.read_text_file(session, path)
        await self.say(session, read.content)

    async def do_run(self, session: str, rest: str) -> None:
        terminal = await self.client.create_terminal(session, "sh", ["-c", rest])
        id = terminal.terminal_id
        exited = await self.client.wait_for_terminal_exit(session, id)
        output = await self.client.terminal_output(session, id)
        await self.client.release_terminal(session, id)
        await self.say(session, f"{exited.exit_code} {output.output}")

    async def do_wait(self, session: str, rest: str) -> None:
        await self.say(session, "waiting")
        await self.cancelled.wait()


if __name__ == "__main__":
    agent: Any = SdkAgent()  # it has the methods that it needs, and not all
    asyncio.run(acp.run_agent(agent))
