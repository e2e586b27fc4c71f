"""Results of a server as the types that the library has for them."""

from base64 import b64decode
from typing import Any, Literal

from msgspec import Struct, field

from portico.core.model.content import Block, Contents, Message, ToolResult
from portico.core.protocol.eras import SERVER_INFO_KEY


class ReceivedToolResult(Struct):
    """The result of `tools/call`."""

    content: list[dict[str, Any]] = []
    structuredContent: Any = None  # noqa: N815  (fields of the wire)
    isError: bool = False  # noqa: N815
    meta: dict[str, Any] = field(default_factory=dict, name="_meta")

    def typed(self) -> ToolResult:
        """Return it as a tool could return it."""
        return ToolResult(
            content=[Block(raw=block) for block in self.content],
            structured=self.structuredContent,
            is_error=self.isError,
            meta=_own(self.meta),
        )


class _ReceivedContents(Struct):
    uri: str
    mimeType: str = ""  # noqa: N815  (a field of the wire)
    text: str | None = None
    blob: str = ""
    meta: dict[str, Any] | None = field(default=None, name="_meta")


class ReceivedResource(Struct):
    """The result of `resources/read`."""

    contents: list[_ReceivedContents]

    def typed(self) -> list[Contents]:
        """Return the contents; a blob as bytes."""
        return [
            Contents(
                one.text if one.text is not None else b64decode(one.blob),
                one.uri,
                one.mimeType,
                one.meta,
            )
            for one in self.contents
        ]


class _ReceivedMessage(Struct):
    role: Literal["user", "assistant"]
    content: dict[str, Any]


class FilledPrompt(Struct):
    """The messages of a prompt."""

    messages: list[Message]
    description: str = ""

    @property
    def text(self) -> str:
        """The texts of the messages, one below the other."""
        return "\n".join(one.content for one in self.messages if isinstance(one.content, str))


class ReceivedPrompt(Struct):
    """The result of `prompts/get`."""

    messages: list[_ReceivedMessage]
    description: str = ""

    def typed(self) -> FilledPrompt:
        """Return the messages; the content of a plain text is a string."""
        messages = [Message(_plain(one.content), one.role) for one in self.messages]
        return FilledPrompt(messages, self.description)


def _plain(block: dict[str, Any]) -> str | Block:
    is_plain = block.keys() == {"type", "text"}
    return block["text"] if is_plain else Block(raw=block)


def _own(meta: dict[str, Any]) -> dict[str, Any] | None:
    """Return the server's own metadata, without that of the protocol."""
    return {key: value for key, value in meta.items() if key != SERVER_INFO_KEY} or None
