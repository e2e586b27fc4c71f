"""A function's parameters with their types, wherever those are written and however quoted."""

import inspect
import sys
import types
import typing
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any

from msgspec import Struct
from msgspec.structs import replace

from portico.definitions import docstrings
from portico.definitions.constraints import (
    constrained,
    constrained_default,
    default_of,
    is_field,
    members,
)
from portico.definitions.definition_error import DefinitionError
from portico.definitions.wording import render

NOTHING: Any = inspect.Parameter.empty
"""Stands where there is no default, or no annotation."""
_CONTEXTS = frozenset({"Context", "BlockingContext"})


class Parameter(Struct, frozen=True):
    """One parameter that the caller gives."""

    name: str
    type: Any
    default: Any
    description: str
    fill: Callable[[], Any] | None = None
    """Makes the value to call with, where Python's own default is pydantic's `Field`."""

    @property
    def required(self) -> bool:
        """True if it has no default."""
        return self.default is NOTHING


class Signature(Struct, frozen=True):
    """What a function takes and returns, and what its docstring says."""

    label: str
    """What the function is called in messages."""
    name: str
    summary: str
    parameters: tuple[Parameter, ...]
    context: str | None
    """The parameter that takes the context."""
    positional: dict[str, Any]
    """The parameters that have to be given by position, in order, with their defaults."""
    returns: Any

    def error(self, reason: str, parameter: str = "") -> DefinitionError:
        """An error that names the function and the parameter."""
        field = f"parameter {parameter}" if parameter else ""
        return DefinitionError(reason, source=self.label, field=field)


def read_signature(function: Callable[..., Any]) -> Signature:
    """Read a function, or raise DefinitionError for one that cannot be called by name."""
    if isinstance(function, type):
        raise DefinitionError("is a class; give a function", source=function.__qualname__)
    target = _written(function)
    # An object that is called goes by the name of its class.
    is_object = target.__name__ == "__call__"
    name = type(function).__name__ if is_object else target.__name__
    label = f"{name if is_object else target.__qualname__}()"
    try:
        found = inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise DefinitionError(f"has no signature: {error}", source=label) from None
    # A call without a docstring would get the words that Python has for all calls.
    doc = "" if is_object and not target.__doc__ else inspect.getdoc(target) or ""
    scope = _Scope(target, label)
    bound = function.keywords if isinstance(function, partial) else ()
    # What is bound may be a secret, and is not the caller's to give.
    free = [parameter for name, parameter in found.parameters.items() if name not in bound]
    context, parameters = _parted(free, scope, docstrings.parameters(doc))
    return Signature(
        label=label,
        name=name,
        summary=docstrings.summary(doc),
        parameters=tuple(parameters),
        context=context,
        positional={
            parameter.name: parameter.default
            for parameter in found.parameters.values()
            if parameter.kind is parameter.POSITIONAL_ONLY
        },
        returns=scope.resolve(found.return_annotation, "the return type"),
    )


def _written(function: Any) -> Any:
    """The function as it stands in the source: without decorators and partial arguments."""
    while isinstance(function, partial):
        function = function.func
    function = inspect.unwrap(function)
    if inspect.isroutine(function):
        return function
    return type(function).__call__


def _parted(
    found: list[inspect.Parameter], scope: "_Scope", described: Mapping[str, str]
) -> tuple[str | None, list[Parameter]]:
    """The parameter that takes the context, and those that the caller gives."""
    contexts: list[str] = []
    parameters: list[Parameter] = []
    for one in found:
        words = described.get(one.name, "")
        read = None if _takes_context(one) else _read(one, scope, words)
        if read is None or _means_context(read.type):
            contexts.append(one.name)
        else:
            parameters.append(read)
    if len(contexts) > 1:
        raise DefinitionError("takes the context twice", source=scope.label)
    return (contexts[0] if contexts else None), parameters


def _read(parameter: inspect.Parameter, scope: "_Scope", description: str) -> Parameter:
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        why = "cannot be described: every argument needs a name of its own"
        where = f"parameter {str(parameter).partition(':')[0]}"
        raise DefinitionError(why, source=scope.label, field=where)
    where = f"parameter {parameter.name}"
    if parameter.name == "self" and parameter.annotation is NOTHING:
        why = "no caller has it to give: register the method of an object, not of a class"
        raise DefinitionError(why, source=scope.label, field=where)
    kind = scope.resolve(parameter.annotation, where)
    try:
        return _limited(Parameter(parameter.name, kind, parameter.default, description))
    except TypeError as error:
        raise DefinitionError(str(error), source=scope.label, field=where) from None


def _limited(parameter: Parameter) -> Parameter:
    """The parameter with what pydantic and annotated-types say of it in terms of msgspec."""
    field = parameter.default
    if not is_field(field):
        return replace(parameter, type=constrained(parameter.type))
    if field.alias is not None or field.validation_alias is not None:
        raise TypeError("takes pydantic's Field with an alias; name the parameter so instead")
    fill = default_of(field)
    default = NOTHING if fill is None else field.default
    kind = Any if parameter.type is NOTHING else parameter.type
    return replace(parameter, type=constrained_default(kind, field), default=default, fill=fill)


def _takes_context(parameter: inspect.Parameter) -> bool:
    """By its annotation, which need not be importable at run time, or else by its name."""
    annotation = parameter.annotation
    if annotation is NOTHING:
        return parameter.name == "context"
    if isinstance(annotation, str):
        name = annotation.strip("\"' ").replace(" ", "").removesuffix("|None")
        return name.rpartition(".")[2] in _CONTEXTS
    return _means_context(annotation)


def _means_context(annotation: Any) -> bool:
    if typing.get_origin(annotation) is Annotated:
        return _means_context(annotation.__origin__)
    for member in members(annotation):
        if isinstance(member, typing.ForwardRef):
            names = [member.__forward_arg__.rpartition(".")[2]]
        else:
            names = [base.__name__ for base in getattr(member, "__mro__", ())]
        if not _CONTEXTS.isdisjoint(names):
            return True
    return False


class _Scope:
    """The names that the annotations of one function can mean."""

    def __init__(self, target: Any, label: str) -> None:
        self.label = label
        self._globals: dict[str, Any] = getattr(target, "__globals__", {})
        code = getattr(target, "__code__", None)
        cells = zip(code.co_freevars, target.__closure__ or (), strict=False) if code else ()
        self._closure = {name: cell.cell_contents for name, cell in cells if _is_filled(cell)}

    def resolve(self, annotation: Any, what: str) -> Any:
        """The type that an annotation means; NOTHING if there is none."""
        if annotation is NOTHING or type(annotation) is type:
            return annotation
        try:
            try:
                return self._evaluated(annotation, self._closure)
            except NameError:
                return self._evaluated(annotation, {**self._surroundings(), **self._closure})
        except (NameError, AttributeError, SyntaxError, TypeError) as error:
            why = f"cannot make sense of its annotation {render(str(annotation))}: {error}"
            raise DefinitionError(why, source=self.label, field=what) from None

    def _evaluated(self, annotation: Any, local: dict[str, Any]) -> Any:
        holder = types.SimpleNamespace(__annotations__={"it": annotation})
        return typing.get_type_hints(holder, self._globals, local, include_extras=True)["it"]

    def _surroundings(self) -> dict[str, Any]:
        """Names of the functions around this one that are still running.

        A quoted annotation does not make a closure, so a class beside a nested function is found
        only here.
        """
        names: dict[str, Any] = {}
        frame: types.FrameType | None = sys._getframe(1)
        while frame is not None:
            if frame.f_globals is self._globals:
                names = {**frame.f_locals, **names}
            frame = frame.f_back
        return names


def _is_filled(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False
