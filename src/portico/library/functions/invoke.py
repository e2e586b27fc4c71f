"""Calls registered handlers: async and plain functions, and objects with a `call` method."""

import asyncio
import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from portico.core.model.context import Context
from portico.core.model.errors import RegistrationError
from portico.library.functions.blocking import BlockingContext, cancel_running
from portico.library.functions.handler_exceptions import NotAnException, ends_call, intended_error
from portico.library.functions.rounds import Suspended, suspended_in
from portico.library.functions.threads import Threads

threads = Threads()

Binder = Callable[[dict[str, Any], Any], tuple[list[Any], dict[str, Any]]]
"""Maps arguments and context to the parameters of a function."""


class Invocation:
    """A registered function and its binder.

    Without a binder it is the handler of a definition, which may be an object with a `call` method.
    """

    def __init__(self, target: Any, bind: Binder | None = None) -> None:
        self.function = _handler_of(target) if bind is None else _function_of(target)
        self.is_async = inspect.iscoroutinefunction(self.function)
        self._bind = bind or _plain_binder(self.function)

    async def __call__(self, arguments: dict[str, Any], context: Context) -> Any:
        """Call the function: on the event loop if it is async, otherwise in a thread."""
        try:
            if not self.is_async:
                return await self._in_thread(arguments, context)
            args, kwargs = self._bind(arguments, context)
            return await self.function(*args, **kwargs)
        except ExceptionGroup as group:
            raise intended_error(group) or group from None
        except (Exception, Suspended):
            raise
        except BaseException as error:
            if ends_call(error):
                context.cancelled = True  # a thread cannot be stopped, but it can check this
                raise
            if isinstance(error, BaseExceptionGroup) and (round := suspended_in(error)) is not None:
                raise round from None
            # It would end the event loop, or leave the client without a response.
            raise NotAnException(error) from error

    async def _in_thread(self, arguments: dict[str, Any], context: Context) -> Any:
        blocking = BlockingContext(context, asyncio.get_running_loop())
        args, kwargs = self._bind(arguments, blocking)
        try:
            value = await threads.run(lambda: self.function(*args, **kwargs))
        except asyncio.CancelledError:
            cancel_running(blocking)
            raise
        return await value if inspect.isawaitable(value) else value


def _handler_of(target: Any) -> Callable[..., Any]:
    if isinstance(target, type):
        raise RegistrationError(
            f"{target.__name__} is a class; give an instance of it as the handler"
        )
    call = getattr(target, "call", None)
    if call is not None and callable(call):
        return call  # type: ignore[no-any-return]  # getattr is untyped
    if not callable(target):
        raise RegistrationError(
            f"{target!r} is not a handler; give a function or an object with a `call` method"
        )
    return _function_of(target)


def _function_of(target: Any) -> Callable[..., Any]:
    if inspect.isroutine(target) or isinstance(target, partial):
        return target
    return target.__call__  # type: ignore[no-any-return]  # a callable object's own method


def _plain_binder(function: Callable[..., Any]) -> Binder:
    """Return the binder for a handler of a definition: `(arguments, context)` or `(arguments)`."""
    parameters = list(parameters_of(function).values())
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    keyword = any(p.kind is p.KEYWORD_ONLY and p.name == "context" for p in parameters)
    variadic = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    if not positional and not variadic:
        name = getattr(function, "__qualname__", repr(function))
        raise RegistrationError(f"{name} must take the arguments: def {name}(arguments, context)")

    def bind(arguments: dict[str, Any], context: Any) -> tuple[list[Any], dict[str, Any]]:
        if len(positional) >= 2 or variadic:
            return [arguments, context], {}
        return [arguments], {"context": context} if keyword else {}

    return bind


def parameters_of(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """Return a function's parameters; raise RegistrationError for builtins without a signature."""
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError) as error:
        raise RegistrationError(f"{function!r} cannot be a handler: {error}") from None
