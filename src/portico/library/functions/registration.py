"""The decorators and methods that register tools, resources, prompts and completions."""

from collections.abc import Callable, Iterable, Mapping
from os import PathLike
from threading import Lock
from typing import Any, TypeVar, overload

from portico.core.definitions import load
from portico.core.model.errors import RegistrationError
from portico.core.model.methods import CAPABILITIES, LIST_KINDS
from portico.library.functions.completions import Completer
from portico.library.functions.functions import FunctionProvider
from portico.library.functions.invoke import Invocation
from portico.library.functions.registered import (
    Prompt,
    Registered,
    Resource,
    Source,
    Template,
    Tool,
    load_prompts,
    load_resources,
    load_templates,
    load_tools,
)
from portico.library.functions.task_mode import registered_mode

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
_KINDS = ("tool", "resource", "template", "prompt")


class Registration:
    """Registers definitions, functions, or both with a `Server`."""

    def __init__(self, functions: FunctionProvider) -> None:
        self._functions = functions
        self._lock = Lock()

    # Definitions as data.

    def load_tools(self, source: Source) -> None:
        """Define tools from a file, bytes or objects; give each its function with `handler`."""
        self._add("tools", load_tools(source))

    def load_resources(self, source: Source) -> None:
        """Define resources from a file, bytes or objects."""
        self._add("resources", load_resources(source))

    def load_templates(self, source: Source) -> None:
        """Define resource templates from a file, bytes or objects."""
        self._add("templates", load_templates(source))

    def load_prompts(self, source: Source) -> None:
        """Define prompts from a file, bytes or objects."""
        self._add("prompts", load_prompts(source))

    def load(self, path: str | PathLike[str]) -> None:
        """Define everything in one file: tools, resources, resourceTemplates and prompts."""
        found = load.load_file(path)
        self._add("tools", map(Tool, found.tools))
        self._add("resources", map(Resource, found.resources))
        self._add("templates", map(Template, found.templates))
        self._add("prompts", map(Prompt, found.prompts))

    @overload
    def handler(self, name: str, *, kind: str = "tool") -> Callable[[F], F]: ...
    @overload
    def handler(self, name: str, target: T, *, kind: str = "tool") -> T: ...
    def handler(self, name: str, target: Any = None, *, kind: str = "tool") -> Any:
        """Give a defined tool (or resource, template, prompt) its function: `(arguments, context)`.

        Use it as a decorator, or pass the function or an object that has a `call` method.
        """
        entry = self._defined(kind, name)
        if target is not None:
            entry.invoke = Invocation(target)
            return target

        def decorate(function: F) -> F:
            entry.invoke = Invocation(function)
            return function

        return decorate

    def unanswered(self) -> list[tuple[str, str, str]]:
        """Return the kind, key and name of every definition that has no function yet."""
        return [
            (kind, key, entry.name)
            for kind in _KINDS
            for key, entry in self._entries(f"{kind}s").items()
            if entry.invoke is None
        ]

    # Definitions derived from functions.

    @overload
    def tool(self, function: F, **definition: Any) -> F: ...
    @overload
    def tool(self, function: None = None, **definition: Any) -> Callable[[F], F]: ...
    def tool(self, function: Any = None, **definition: Any) -> Any:
        """Register a function as a tool; its definition comes from its signature and docstring.

        Override parts with `name`, `title`, `description`, `annotations`, `icons`, `meta` and
        `output_schema`. With `task=True` a client that supports tasks gets one for each call; with
        `"required"` only such clients can call it; with `"manual"` a call becomes a task when the
        function calls `context.begin_task()`.
        """
        if function is None:
            return lambda decorated: self.tool(decorated, **definition)
        _check_callable(function, "tool")
        from portico.core.definitions.derive import derive_tool

        mode = registered_mode(definition.pop("task", None))
        derived = derive_tool(function, **definition)
        tool = Tool(derived.definition, derived, mode)
        tool.invoke = Invocation(function, derived.bind)
        self._add("tools", [tool])
        return function

    def resource(
        self,
        uri: str,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
        meta: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> Callable[[F], F]:
        """Register a function that reads a resource, or a template if the URI has `{variables}`.

        `more` are further fields of the definition: `annotations`, `icons`, `size`.
        """

        if not isinstance(uri, str):
            raise RegistrationError("resource: a URI is required: @server.resource('notes://all')")

        def decorate(function: F) -> F:
            from portico.core.definitions.derive import derive_template

            derived = derive_template(function, uri)
            given = {"name": name, "title": title, "description": description}
            definition = {**derived.definition, **{k: v for k, v in given.items() if v}, **more}
            if mime_type:
                definition["mimeType"] = mime_type
            if meta is not None:
                definition["_meta"] = dict(meta)
            self._add_resource(uri, definition, Invocation(function, derived.bind))
            return function

        return decorate

    @overload
    def prompt(self, function: F, **definition: Any) -> F: ...
    @overload
    def prompt(self, function: None = None, **definition: Any) -> Callable[[F], F]: ...
    def prompt(self, function: Any = None, **definition: Any) -> Any:
        """Register a function as a prompt; its parameters are the prompt's arguments."""
        if function is None:
            return lambda decorated: self.prompt(decorated, **definition)
        _check_callable(function, "prompt")
        from portico.core.definitions.derive import derive_prompt

        derived = derive_prompt(function, **definition)
        prompt = Prompt(derived.definition)
        prompt.invoke = Invocation(function, derived.bind)
        self._add("prompts", [prompt])
        return function

    def completion(self, reference: str, argument: str) -> Callable[[F], F]:
        """Register a function that completes an argument of a prompt or template."""

        def decorate(function: F) -> F:
            completer = Completer(function)
            with self._lock:
                known = self._functions.completers
                if (reference, argument) in known:
                    what = f"a completion of {argument!r} of {reference!r}"
                    raise RegistrationError(f"{what} is already registered; remove it first")
                self._functions.completers = {**known, (reference, argument): completer}
            self._functions.changed("prompts")
            return function

        return decorate

    # Adding both at once, and removing; also while the server runs.

    def add_tool(
        self, definition: Mapping[str, Any], target: Any, *, task: bool | str | None = None
    ) -> None:
        """Define a tool together with its function; `task` is that of `tool`."""
        (loaded,) = load.load_tools([definition])
        tool = Tool(loaded, mode=registered_mode(task))
        tool.invoke = Invocation(target)
        self._add("tools", [tool])

    def remove_tool(self, name: str) -> None:
        """Remove a tool and notify clients."""
        self._remove("tools", name)

    def remove_resource(self, uri: str) -> None:
        """Remove a resource or a template and notify clients."""
        self._remove("templates" if uri in self._functions.templates else "resources", uri)

    def remove_prompt(self, name: str) -> None:
        """Remove a prompt and notify clients."""
        self._remove("prompts", name)

    def remove_completion(self, reference: str, argument: str) -> None:
        """Remove the completion of an argument."""
        with self._lock:
            left = dict(self._functions.completers)
            if left.pop((reference, argument), None) is None:
                what = f"no completion of {argument!r} of {reference!r}"
                raise RegistrationError(f"{what} is registered")
            self._functions.completers = left
        self._functions.changed("prompts")

    def _add_resource(self, uri: str, definition: dict[str, Any], invoke: Invocation) -> None:
        entry: Resource | Template
        if "{" in uri:
            (loaded,) = load.load_templates([definition])
            entry = Template(loaded)
        else:
            (loaded,) = load.load_resources([definition])
            entry = Resource(loaded)
        entry.invoke = invoke
        self._add("templates" if "{" in uri else "resources", [entry])

    def _add(self, where: str, added: Iterable[Any]) -> None:
        new = {entry.definition[LIST_KINDS[where].key]: entry for entry in added}
        with self._lock:
            entries = self._entries(where)
            for key in new:
                if key in entries:
                    raise RegistrationError(f"{key!r} is already registered; remove it first")
            # A new dict, so that other threads can keep iterating over the old one.
            setattr(self._functions, where, {**entries, **new})
        if new:
            self._list_changed(where)

    def _remove(self, where: str, key: str) -> None:
        with self._lock:
            entries = self._entries(where)
            if key not in entries:
                raise RegistrationError(f"nothing named {key!r} is registered")
            left = {kept: entry for kept, entry in entries.items() if kept != key}
            setattr(self._functions, where, left)
        self._list_changed(where)

    def _list_changed(self, where: str) -> None:
        self._functions.changed(CAPABILITIES[LIST_KINDS[where].method])

    def _entries(self, where: str) -> dict[str, Registered]:
        entries: dict[str, Registered] = getattr(self._functions, where)
        return entries

    def _defined(self, kind: str, name: str) -> Registered:
        if kind not in _KINDS:
            raise RegistrationError(f"kind must be one of {', '.join(_KINDS)}, not {kind!r}")
        entries = self._entries(f"{kind}s")
        by_name = (entry for entry in entries.values() if entry.name == name)
        entry = entries.get(name) or next(by_name, None)
        if entry is None:
            known = ", ".join(sorted(entries)) or "none"
            raise RegistrationError(f"no {kind} {name!r} is defined (defined: {known})")
        return entry


def _check_callable(function: Any, what: str) -> None:
    if callable(function):
        return
    hint = f"; to name it, write @server.{what}(name={function!r})"
    named = hint if isinstance(function, str) else ""
    raise RegistrationError(f"{what}: {function!r} is not a function{named}")
