"""Completions of prompt arguments and template variables."""

from collections.abc import Iterable
from inspect import Parameter
from typing import Any

from portico.core.model.context import Context
from portico.library.functions.invoke import Invocation, parameters_of
from portico.library.functions.results import WrongReturn

MAX_VALUES = 100
_BY_POSITION = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


class Completer:
    """A function that completes one argument: `(value)`, `(value, known)`, or with a context."""

    def __init__(self, function: Any) -> None:
        parameters = parameters_of(function)
        others = [p for name, p in parameters.items() if name != "context"]
        takes = sum(2 if p.kind is p.VAR_POSITIONAL else p.kind in _BY_POSITION for p in others)

        def bind(given: dict[str, Any], context: Any) -> tuple[list[Any], dict[str, Any]]:
            args = [given["value"], given["known"]][:takes]
            return args, {"context": context} if "context" in parameters else {}

        self._invoke = Invocation(function, bind)

    async def __call__(self, value: str, known: dict[str, str], context: Context) -> Any:
        """Return the values that complete a typed prefix, given the other arguments."""
        return await self._invoke({"value": value, "known": known}, context)


def completion_result(values: Any) -> dict[str, Any]:
    """Return a `completion/complete` result; values beyond the protocol's 100 are only counted."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise WrongReturn("a completer must return a list of strings")
    found = [str(value) for value in values]
    completion: dict[str, Any] = {"values": found[:MAX_VALUES], "total": len(found)}
    completion["hasMore"] = len(found) > MAX_VALUES
    return {"completion": completion}
