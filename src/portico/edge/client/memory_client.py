"""A typed client of a server in the same process, for tests: `server.test_client()`."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import msgspec
from msgspec import Struct, field

from portico.core.model.content import Contents, ToolResult
from portico.core.model.methods import LISTEN
from portico.core.model.version import Version
from portico.core.protocol.listen import LIST_KINDS, SUBSCRIPTION_KEY
from portico.core.protocol.received_results import (
    FilledPrompt,
    ReceivedPrompt,
    ReceivedResource,
    ReceivedToolResult,
)
from portico.edge.client.client import Client
from portico.edge.client.connect import connect
from portico.edge.client.memory_answers import Elicit, Roots, Sample, client_answers
from portico.upstream.rpc.pending_request import FOREVER
from portico.upstream.wires.wire import Address

T = TypeVar("T")

OnProgress = Callable[[float, float | None, str | None], object]
"""Takes progress, total and message."""


class _Definition(Struct, kw_only=True, rename="camel"):
    name: str
    title: str = ""
    description: str = ""
    annotations: dict[str, Any] = {}
    icons: list[dict[str, Any]] = []
    meta: dict[str, Any] = field(default_factory=dict, name="_meta")


class ToolDefinition(_Definition, kw_only=True, rename="camel"):
    """A tool, as its server lists it."""

    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None = None


class ResourceDefinition(_Definition, kw_only=True, rename="camel"):
    """A resource, as its server lists it."""

    uri: str
    mime_type: str = ""
    size: int | None = None


class TemplateDefinition(_Definition, kw_only=True, rename="camel"):
    """A template of resources, as its server lists it."""

    uri_template: str
    mime_type: str = ""


class PromptArgument(Struct):
    """One argument of a prompt."""

    name: str
    title: str = ""
    description: str = ""
    required: bool = False


class PromptDefinition(_Definition, kw_only=True, rename="camel"):
    """A prompt, as its server lists it."""

    arguments: list[PromptArgument] = []


class Completion(Struct, rename="camel"):
    """The values that complete an argument."""

    values: list[str]
    total: int | None = None
    has_more: bool = False


class _Completed(Struct):
    completion: Completion


class LogMessage(Struct):
    """A log message of a handler."""

    level: str
    data: Any
    logger: str = ""


class Changed(Struct, frozen=True):
    """A changed list (`tools`, `resources`, `prompts`), or an updated resource with its URI."""

    kind: str
    uri: str = ""


class ChangeStream:
    """The changes that arrive while it is open, in order: `await anext(changes)`."""

    def __init__(self) -> None:
        self._changes: asyncio.Queue[Changed] = asyncio.Queue()
        self.subscription: Any = None
        """The id of its subscription, which modern notifications carry."""
        self.acknowledged = asyncio.Event()

    def __aiter__(self) -> "ChangeStream":
        return self

    async def __anext__(self) -> Changed:
        return await self._changes.get()

    def put(self, change: Changed) -> None:
        """Add a change."""
        self._changes.put_nowait(change)


class MemoryClient:
    """A client of one server, over the real protocol but without I/O.

    Errors of the server are raised as McpError; a tool that fails is a result with `is_error`.
    """

    def __init__(self, client: Client, logged: list[LogMessage]) -> None:
        self._client = client
        self._streams: list[ChangeStream] = []
        self.logged = logged
        """The log messages so far."""

    @property
    def version(self) -> Version:
        """The version of the protocol."""
        return self._client.server.version

    @property
    def server_info(self) -> dict[str, Any]:
        """The server's name, version and title."""
        return self._client.server.info

    @property
    def capabilities(self) -> dict[str, Any]:
        """The capabilities that the server declared."""
        return self._client.server.capabilities

    @property
    def instructions(self) -> str:
        """The server's instructions for a model."""
        return self._client.server.instructions

    async def list_tools(self) -> list[ToolDefinition]:
        """Return all tools."""
        return await self._list("tools", ToolDefinition)

    async def list_resources(self) -> list[ResourceDefinition]:
        """Return all resources that have their own URI."""
        return await self._list("resources", ResourceDefinition)

    async def list_templates(self) -> list[TemplateDefinition]:
        """Return all templates of resources."""
        return await self._list("templates", TemplateDefinition)

    async def list_prompts(self) -> list[PromptDefinition]:
        """Return all prompts."""
        return await self._list("prompts", PromptDefinition)

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        progress: OnProgress | None = None,
        timeout_s: float | None = None,
    ) -> ToolResult:
        """Call a tool; its questions are answered by the functions of this client."""
        params = {"name": name, "arguments": dict(arguments or {})}
        raw = await self._client.request_raw(
            "tools/call",
            params,
            timeout=timeout_s,
            progress=None if progress is None else lambda fields: _report(progress, fields),
        )
        return msgspec.json.decode(raw, type=ReceivedToolResult).typed()

    async def read_resource(self, uri: str) -> list[Contents]:
        """Read a resource; a blob becomes bytes."""
        return (await self._send("resources/read", {"uri": uri}, ReceivedResource)).typed()

    async def get_prompt(
        self, name: str, arguments: Mapping[str, str] | None = None
    ) -> FilledPrompt:
        """Fill in a prompt."""
        params = {"name": name, "arguments": dict(arguments or {})}
        return (await self._send("prompts/get", params, ReceivedPrompt)).typed()

    async def complete(
        self, reference: str, argument: str, value: str, known: Mapping[str, str] | None = None
    ) -> Completion:
        """Complete an argument of a prompt, or a variable of a template; `known` are the others."""
        is_template = "://" in reference
        kind, key = ("ref/resource", "uri") if is_template else ("ref/prompt", "name")
        params: dict[str, Any] = {
            "ref": {"type": kind, key: reference},
            "argument": {"name": argument, "value": value},
        }
        if known:
            params["context"] = {"arguments": dict(known)}
        return (await self._send("completion/complete", params, _Completed)).completion

    async def request(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Send any request, and return its result as it came."""
        return await self._client.request(method, params)

    @asynccontextmanager
    async def changes(self, *uris: str) -> AsyncGenerator[ChangeStream, None]:
        """Follow the changes of all lists and of these resources."""
        stream = ChangeStream()
        self._streams.append(stream)
        try:
            if self.version.modern:
                async with self._listening(stream, uris):
                    yield stream
            else:
                async with self._subscribed(uris):
                    yield stream
        finally:
            self._streams.remove(stream)

    @asynccontextmanager
    async def _listening(
        self, stream: ChangeStream, uris: tuple[str, ...]
    ) -> AsyncGenerator[None, None]:
        wanted: dict[str, Any] = {f"{kind}ListChanged": True for kind in LIST_KINDS}
        if uris:
            wanted["resourceSubscriptions"] = list(uris)
        listening = asyncio.create_task(
            self._client.request_once(LISTEN, {"notifications": wanted}, timeout=FOREVER)
        )
        accepted = asyncio.create_task(stream.acknowledged.wait())
        try:
            await asyncio.wait((listening, accepted), return_when=asyncio.FIRST_COMPLETED)
            if listening.done():
                await listening
            yield
        finally:
            accepted.cancel()
            listening.cancel()
            await asyncio.wait((listening, accepted))

    @asynccontextmanager
    async def _subscribed(self, uris: tuple[str, ...]) -> AsyncGenerator[None, None]:
        for uri in uris:
            await self._client.request("resources/subscribe", {"uri": uri})
        try:
            yield
        finally:
            for uri in uris:
                await self._client.request("resources/unsubscribe", {"uri": uri})

    def on_notification(self, method: str, params: bytes) -> None:
        """Pass a notification of a change on to its streams."""
        fields: dict[str, Any] = msgspec.json.decode(params or b"{}")
        subscription = fields.get("_meta", {}).get(SUBSCRIPTION_KEY)
        if method == "notifications/subscriptions/acknowledged":
            stream = next(one for one in self._streams if not one.acknowledged.is_set())
            stream.subscription = subscription
            stream.acknowledged.set()
            return
        change = _change(method, fields)
        if change is not None:
            for stream in self._streams:
                if stream.subscription == subscription:
                    stream.put(change)

    async def _list(self, kind: str, type: type[T]) -> list[T]:
        return msgspec.convert((await self._client.listing(kind)).items, list[type])  # type: ignore[valid-type]

    async def _send(self, method: str, params: Mapping[str, Any], type: type[T]) -> T:
        return msgspec.json.decode(await self._client.request_raw(method, params), type=type)


@asynccontextmanager
async def memory_client(
    address: Address,
    *,
    era: str,
    elicit: Elicit | None,
    sample: Sample | None,
    roots: Roots | None,
    log_level: str,
) -> AsyncGenerator[MemoryClient, None]:
    """Connect a typed client to a server in this process."""
    logged: list[LogMessage] = []
    made: MemoryClient | None = None

    def on_notification(method: str, params: bytes) -> None:
        if made is not None:
            made.on_notification(method, params)

    async with await connect(
        address,
        era=era,
        answers=client_answers(elicit, sample, roots),
        log=lambda message: logged.append(msgspec.convert(message, LogMessage)),
        on_notification=on_notification,
        info={"name": "test", "version": "0"},
    ) as client:
        if log_level:
            await client.set_log_level(log_level)
        made = MemoryClient(client, logged)
        yield made


def _report(progress: OnProgress, fields: dict[str, Any]) -> None:
    progress(fields["progress"], fields.get("total"), fields.get("message"))


def _change(method: str, fields: Mapping[str, Any]) -> Changed | None:
    if method == "notifications/resources/updated":
        return Changed("resources", fields["uri"])
    kind, _, what = method.removeprefix("notifications/").partition("/")
    return Changed(kind) if what == "list_changed" else None
