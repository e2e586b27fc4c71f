"""A test's answers to the questions of a server."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from inspect import isawaitable
from typing import Any

from portico.core.model.context import Elicited
from portico.edge.client.client_answers import Answer, ClientAnswers

ElicitAnswer = Mapping[str, Any] | Elicited[Any] | None
"""The content that a person submits, None to decline, or an `Elicited` with any action."""
Elicit = Callable[[dict[str, Any]], ElicitAnswer | Awaitable[ElicitAnswer]]
"""Takes the params of an elicitation: `message`, `requestedSchema`, or `url`."""
SampleAnswer = str | Mapping[str, Any]
"""The text of a completion, or a whole result."""
Sample = Callable[[dict[str, Any]], SampleAnswer | Awaitable[SampleAnswer]]
"""Takes the params of a sampling request: `messages`, `maxTokens` and more."""
Roots = Sequence[str | Mapping[str, Any]]
"""The roots, as URIs or as objects with `uri` and `name`."""


def client_answers(
    elicit: Elicit | None, sample: Sample | None, roots: Roots | None
) -> ClientAnswers:
    """Return the handlers of a client with these answers; it declares only those that are given."""
    return ClientAnswers(
        elicit=None if elicit is None else _elicited(elicit),
        elicit_modes=("form", "url"),
        sample=None if sample is None else _sampled(sample),
        roots=None if roots is None else _rooted(roots),
    )


def _elicited(elicit: Elicit) -> Answer:
    async def answer(params: dict[str, Any]) -> Mapping[str, Any]:
        given: Any = elicit(params)
        if isawaitable(given):
            given = await given
        if given is None:
            return {"action": "decline"}
        if not isinstance(given, Elicited):
            given = Elicited("accept", given)
        if not given.accepted:
            return {"action": given.action}
        return {"action": "accept", "content": dict(given.content or {})}

    return answer


def _sampled(sample: Sample) -> Answer:
    async def answer(params: dict[str, Any]) -> Mapping[str, Any]:
        given: Any = sample(params)
        if isawaitable(given):
            given = await given
        if not isinstance(given, str):
            whole: Mapping[str, Any] = given
            return whole
        content = {"type": "text", "text": given}
        return {"role": "assistant", "content": content, "model": "test", "stopReason": "endTurn"}

    return answer


def _rooted(roots: Roots) -> Answer:
    listed = [{"uri": root} if isinstance(root, str) else dict(root) for root in roots]

    async def answer(params: dict[str, Any]) -> Mapping[str, Any]:
        return {"roots": listed}

    return answer
