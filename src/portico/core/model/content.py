"""The types that handlers may return besides plain Python values."""

from base64 import b64encode
from typing import Any, ClassVar, Literal

from msgspec import Struct


class Content(Struct, kw_only=True):
    """One content block of a tool result or a prompt message."""

    __mcp_content__: ClassVar[bool] = True
    kind: ClassVar[str] = ""

    annotations: dict[str, Any] | None = None
    meta: dict[str, Any] | None = None

    def block(self) -> dict[str, Any]:
        """The block as it is sent."""
        block: dict[str, Any] = {"type": self.kind, **self.fields()}
        if self.annotations is not None:
            block["annotations"] = self.annotations
        if self.meta is not None:
            block["_meta"] = self.meta
        return block

    def fields(self) -> dict[str, Any]:
        """The fields that only this kind of block has."""
        return {}


class Text(Content):
    """Plain text."""

    kind: ClassVar[str] = "text"
    text: str

    def fields(self) -> dict[str, Any]:
        return {"text": self.text}


class Contents(Struct):
    """The contents of a resource: text or bytes. The URI defaults to the one that was read."""

    __mcp_content__: ClassVar[bool] = True

    body: str | bytes
    uri: str = ""
    mime_type: str = ""
    meta: dict[str, Any] | None = None

    def entry(self, uri: str, mime_type: str) -> dict[str, Any]:
        """The entry as it is sent, with defaults from the resource's definition."""
        entry: dict[str, Any] = {"uri": self.uri or uri}
        if mime := self.mime_type or mime_type:
            entry["mimeType"] = mime
        if isinstance(self.body, str):
            entry["text"] = self.body
        else:
            entry["blob"] = b64encode(self.body).decode()
        if self.meta is not None:
            entry["_meta"] = self.meta
        return entry


class Embedded(Content):
    """A resource embedded in the result."""

    kind: ClassVar[str] = "resource"
    uri: str
    body: str | bytes
    mime_type: str = ""

    def fields(self) -> dict[str, Any]:
        return {"resource": Contents(self.body, self.uri, self.mime_type).entry("", "")}


class ResourceLink(Content):
    """A pointer to a resource that the client may read."""

    kind: ClassVar[str] = "resource_link"
    uri: str
    name: str
    mime_type: str = ""
    more: dict[str, Any] = {}
    """Any other field of a resource: `title`, `description`, `size`, `icons`."""

    def fields(self) -> dict[str, Any]:
        fields: dict[str, Any] = {"uri": self.uri, "name": self.name, **self.more}
        if self.mime_type:
            fields["mimeType"] = self.mime_type
        return fields


class Message(Struct):
    """One message of a prompt."""

    __mcp_content__: ClassVar[bool] = True

    content: str | Content
    role: Literal["user", "assistant"] = "user"


class Block(Content):
    """A content block as another server sent it."""

    raw: dict[str, Any]

    def block(self) -> dict[str, Any]:
        """The block, unchanged."""
        return self.raw


class ToolResult(Struct, kw_only=True):
    """The whole result of a tool, where a plain value is not enough."""

    __mcp_content__: ClassVar[bool] = True

    content: Any = None
    """Anything a tool may return: text, a block, or several."""
    structured: Any = None
    is_error: bool = False
    meta: dict[str, Any] | None = None

    @property
    def text(self) -> str:
        """Its texts, one below the other."""
        content = self.content if isinstance(self.content, list | tuple) else [self.content]
        return "\n".join(text for one in content if (text := _text(one)) is not None)


def _text(content: Any) -> str | None:
    """Return the text of one block; None for other blocks."""
    if isinstance(content, Content):
        content = content.block()
    if isinstance(content, dict):
        return content["text"] if content.get("type") == "text" else None
    return content if isinstance(content, str) else None
