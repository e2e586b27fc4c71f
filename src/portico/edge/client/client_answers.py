"""A client's answers to its servers: forms, completions and roots."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from portico.core.model.errors import INVALID_PARAMS, METHOD_NOT_FOUND, InvalidParams, McpError

Answer = Callable[[dict[str, Any]], Awaitable[Mapping[str, Any]]]
"""Takes the params of a question and returns its result; raises McpError to refuse it."""


class ClientAnswers(Struct, frozen=True):
    """The handlers of a client; it declares and answers only the kinds that are set."""

    elicit: Answer | None = None
    elicit_modes: tuple[str, ...] = ("form",)
    sample: Answer | None = None
    roots: Answer | None = None

    @property
    def capabilities(self) -> dict[str, Any]:
        """The capabilities to declare."""
        declared: dict[str, Any] = {}
        if self.elicit is not None:
            declared["elicitation"] = {mode: {} for mode in self.elicit_modes}
        if self.sample is not None:
            declared["sampling"] = {}
        if self.roots is not None:
            declared["roots"] = {}
        return declared

    async def answer(self, method: str, params: dict[str, Any]) -> Mapping[str, Any]:
        """Return the result of a question; raises McpError if it is not supported."""
        if method == "ping":
            return {}
        kind = _KINDS.get(method)
        answer: Answer | None = getattr(self, kind) if kind is not None else None
        if answer is None:
            raise McpError(f"this client does not support {method[:80]}", METHOD_NOT_FOUND)
        if kind == "elicit" and (mode := params.get("mode", "form")) not in self.elicit_modes:
            raise InvalidParams(f"this client does not support elicitation of mode {mode!r:.40}")
        return await answer(params)

    async def serve(self, method: str, params: bytes, about: bytes = b"") -> bytes:
        """Answer a question of an exchange, in raw bytes."""
        try:
            decoded = msgspec.json.decode(params or b"{}", type=dict[str, Any])
        except (msgspec.DecodeError, RecursionError) as error:
            raise McpError(f"params of {method[:80]}: {error}", INVALID_PARAMS) from None
        try:
            return msgspec.json.encode(await self.answer(method, decoded))
        except McpError:
            raise
        except Exception as error:
            raise McpError(f"this client failed to answer {method}") from error


_KINDS = {
    "elicitation/create": "elicit",
    "sampling/createMessage": "sample",
    "roots/list": "roots",
}

NO_ANSWERS = ClientAnswers()
