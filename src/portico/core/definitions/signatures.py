"""The parameters and return type of a function, with quoted annotations resolved."""

import inspect
import sys
import types
import typing
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any

from msgspec import Struct
from msgspec.structs import replace

from portico.core.definitions import docstrings
from portico.core.definitions.constraints import (
    constrained,
    constrained_default,
    default_of,
    is_field,
    members,
)
from portico.core.definitions.definition_error import DefinitionError
from portico.core.definitions.wording import render

EMPTY: Any = inspect.Parameter.empty
"""The value of a missing default or annotation."""
_CONTEXTS = frozenset({"Context", "BlockingContext"})


class Parameter(Struct, frozen=True):
    """A parameter that the caller provides."""

    name: str
    type: Any
    default: Any
    description: str
    factory: Callable[[], Any] | None = None
    """Makes the default, if the default in Python is pydantic's `Field`."""

    @property
    def required(self) -> bool:
        """True if it has no default."""
        return self.default is EMPTY


class Signature(Struct, frozen=True):
    """The parameters, return type and docstring of a function."""

    label: str
    """The name of the function in messages."""
    name: str
    summary: str
    parameters: tuple[Parameter, ...]
    context: str | None
    """The parameter that takes the context."""
    positional: dict[str, Any]
    """The positional-only parameters in order, with their defaults."""
    returns: Any

    def error(self, reason: str, parameter: str = "") -> DefinitionError:
        """Return an error with the function and the parameter."""
        field = f"parameter {parameter}" if parameter else ""
        return DefinitionError(reason, source=self.label, field=field)


def read_signature(function: Callable[..., Any]) -> Signature:
    """Read a function's signature; raise DefinitionError if it cannot be called by name."""
    if isinstance(function, type):
        raise DefinitionError("is a class; pass a function", source=function.__qualname__)
    target = _unwrapped(function)
    # A callable object has the name of its class.
    is_object = target.__name__ == "__call__"
    name = type(function).__name__ if is_object else target.__name__
    label = f"{name if is_object else target.__qualname__}()"
    try:
        found = inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise DefinitionError(f"has no signature: {error}", source=label) from None
    # Without its own docstring, `__call__` would inherit Python's.
    doc = "" if is_object and not target.__doc__ else inspect.getdoc(target) or ""
    scope = _Scope(target, label)
    bound = function.keywords if isinstance(function, partial) else ()
    # Bound arguments may be secrets, and callers must not override them.
    free = [parameter for name, parameter in found.parameters.items() if name not in bound]
    context, parameters = _split_context(free, scope, docstrings.parameters(doc))
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


def _unwrapped(function: Any) -> Any:
    """Return the function without decorators and partial arguments."""
    while isinstance(function, partial):
        function = function.func
    function = inspect.unwrap(function)
    if inspect.isroutine(function):
        return function
    return type(function).__call__


def _split_context(
    found: list[inspect.Parameter], scope: "_Scope", described: Mapping[str, str]
) -> tuple[str | None, list[Parameter]]:
    """Return the parameter that takes the context, and those that the caller provides."""
    contexts: list[str] = []
    parameters: list[Parameter] = []
    for one in found:
        words = described.get(one.name, "")
        read = None if _takes_context(one) else _parameter(one, scope, words)
        if read is None or _is_context(read.type):
            contexts.append(one.name)
        else:
            parameters.append(read)
    if len(contexts) > 1:
        raise DefinitionError("has two parameters for the context", source=scope.label)
    return (contexts[0] if contexts else None), parameters


def _parameter(parameter: inspect.Parameter, scope: "_Scope", description: str) -> Parameter:
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        why = "is not supported: every argument needs its own name"
        where = f"parameter {str(parameter).partition(':')[0]}"
        raise DefinitionError(why, source=scope.label, field=where)
    where = f"parameter {parameter.name}"
    if parameter.name == "self" and parameter.annotation is EMPTY:
        why = "callers cannot provide it; register a method of an instance, not of a class"
        raise DefinitionError(why, source=scope.label, field=where)
    kind = scope.resolve(parameter.annotation, where)
    try:
        return _with_constraints(Parameter(parameter.name, kind, parameter.default, description))
    except TypeError as error:
        raise DefinitionError(str(error), source=scope.label, field=where) from None


def _with_constraints(parameter: Parameter) -> Parameter:
    """Return the parameter with the constraints of pydantic and annotated-types."""
    field = parameter.default
    if not is_field(field):
        return replace(parameter, type=constrained(parameter.type))
    if field.alias is not None or field.validation_alias is not None:
        raise TypeError("has a pydantic Field with an alias; rename the parameter instead")
    factory = default_of(field)
    default = EMPTY if factory is None else field.default
    kind = Any if parameter.type is EMPTY else parameter.type
    return replace(
        parameter, type=constrained_default(kind, field), default=default, factory=factory
    )


def _takes_context(parameter: inspect.Parameter) -> bool:
    """True by its annotation, which need not be importable, or by its name."""
    annotation = parameter.annotation
    if annotation is EMPTY:
        return parameter.name == "context"
    if isinstance(annotation, str):
        name = annotation.strip("\"' ").replace(" ", "").removesuffix("|None")
        return name.rpartition(".")[2] in _CONTEXTS
    return _is_context(annotation)


def _is_context(annotation: Any) -> bool:
    if typing.get_origin(annotation) is Annotated:
        return _is_context(annotation.__origin__)
    for member in members(annotation):
        if isinstance(member, typing.ForwardRef):
            names = [member.__forward_arg__.rpartition(".")[2]]
        else:
            names = [base.__name__ for base in getattr(member, "__mro__", ())]
        if not _CONTEXTS.isdisjoint(names):
            return True
    return False


class _Scope:
    """The names that a function's annotations can refer to."""

    def __init__(self, target: Any, label: str) -> None:
        self.label = label
        self._globals: dict[str, Any] = getattr(target, "__globals__", {})
        code = getattr(target, "__code__", None)
        cells = zip(code.co_freevars, target.__closure__ or (), strict=False) if code else ()
        self._closure = {name: cell.cell_contents for name, cell in cells if _is_filled(cell)}

    def resolve(self, annotation: Any, what: str) -> Any:
        """Return the type of an annotation; EMPTY if there is none."""
        if annotation is EMPTY or type(annotation) is type:
            return annotation
        try:
            try:
                return self._evaluated(annotation, self._closure)
            except NameError:
                return self._evaluated(annotation, {**self._enclosing_names(), **self._closure})
        except (NameError, AttributeError, SyntaxError, TypeError) as error:
            why = f"cannot resolve its annotation {render(str(annotation))}: {error}"
            raise DefinitionError(why, source=self.label, field=what) from None

    def _evaluated(self, annotation: Any, local: dict[str, Any]) -> Any:
        holder = types.SimpleNamespace(__annotations__={"it": annotation})
        return typing.get_type_hints(holder, self._globals, local, include_extras=True)["it"]

    def _enclosing_names(self) -> dict[str, Any]:
        """Return the local names of the enclosing functions that are still running.

        A quoted annotation creates no closure, so a local class is found only here.
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
