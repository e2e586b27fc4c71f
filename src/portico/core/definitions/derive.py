"""Tools, prompts and resources derived from Python functions.

The modules that inspect functions are imported on first use: a server of definition files does
not need them.
"""

from collections.abc import Callable, Mapping, Sequence
from types import EllipsisType
from typing import TYPE_CHECKING, Any

from portico.core.definitions.definition_error import DefinitionError
from portico.core.definitions.entries import PROMPT, RESOURCE, TEMPLATE, TOOL, DefinitionKind
from portico.core.definitions.load import check_json
from portico.core.definitions.templates import UriTemplate

if TYPE_CHECKING:
    from portico.core.definitions.binding import Derived
    from portico.core.definitions.signatures import Signature


def derive_tool(
    fn: Callable[..., Any],
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    annotations: Mapping[str, Any] | None = None,
    icons: Sequence[Mapping[str, Any]] | None = None,
    meta: Mapping[str, Any] | None = None,
    output_schema: Mapping[str, Any] | EllipsisType | None = ...,
) -> "Derived":
    """Derive a tool from a signature and docstring; the arguments given here override them.

    `output_schema=None` declares no output schema, whatever the return type.
    """
    from portico.core.definitions.binding import Derived, from_json
    from portico.core.definitions.shapes import input_schema
    from portico.core.definitions.signatures import read_signature

    signature = read_signature(fn)
    output, wraps = _output(signature, output_schema)
    definition = _definition(signature, name, title, description)
    definition["inputSchema"] = input_schema(signature)
    given = {
        "outputSchema": output,
        "annotations": annotations and dict(annotations),
        "icons": icons and [dict(icon) for icon in icons],
        "_meta": meta and dict(meta),
    }
    definition |= {field: value for field, value in given.items() if value is not None}
    _check(TOOL, definition, signature)
    convert = from_json(signature, definition["name"])
    return Derived(definition, signature, convert, wraps_result=wraps)


def derive_prompt(
    fn: Callable[..., Any],
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    icons: Sequence[Mapping[str, Any]] | None = None,
    meta: Mapping[str, Any] | None = None,
) -> "Derived":
    """Derive a prompt whose arguments are the parameters; they are sent as text and converted."""
    from portico.core.definitions.binding import Derived, from_text
    from portico.core.definitions.shapes import input_schema
    from portico.core.definitions.signatures import read_signature

    signature = read_signature(fn)
    definition = _definition(signature, name, title, description)
    properties = input_schema(signature)["properties"]
    arguments = []
    for parameter in signature.parameters:
        argument: dict[str, Any] = {"name": parameter.name}
        if words := properties[parameter.name].get("description"):
            argument["description"] = words
        arguments.append({**argument, "required": parameter.required})
    if arguments:
        definition["arguments"] = arguments
    given = {"icons": icons and [dict(icon) for icon in icons], "_meta": meta and dict(meta)}
    definition |= {field: value for field, value in given.items() if value is not None}
    _check(PROMPT, definition, signature)
    return Derived(definition, signature, from_text(signature, f"prompt {definition['name']}"))


def derive_template(fn: Callable[..., Any], uri_template: str) -> "Derived":
    """Derive a resource template whose variables are the parameters, or a resource of a plain URI.

    The function may also take `uri`, the requested URI.
    """
    from portico.core.definitions.binding import Derived, from_text
    from portico.core.definitions.signatures import read_signature

    signature = read_signature(fn)
    is_template = "{" in uri_template
    # The name of a lambda's resource is its URI.
    name = uri_template if signature.name == "<lambda>" else None
    definition = _definition(signature, name, None, None)
    definition["uriTemplate" if is_template else "uri"] = uri_template
    _check(TEMPLATE if is_template else RESOURCE, definition, signature)
    _check_variables(signature, UriTemplate(uri_template) if is_template else None)
    return Derived(definition, signature, from_text(signature, uri_template))


def _definition(
    signature: "Signature", name: str | None, title: str | None, description: str | None
) -> dict[str, Any]:
    if name is None and signature.name == "<lambda>":
        raise signature.error("needs a name")
    given = {
        "name": name if name is not None else signature.name,
        "title": title,
        "description": description if description is not None else signature.summary or None,
    }
    return {field: value for field, value in given.items() if value is not None}


def _output(
    signature: "Signature", given: Mapping[str, Any] | EllipsisType | None
) -> tuple[dict[str, Any] | None, bool]:
    from portico.core.definitions.shapes import output_schema

    if isinstance(given, EllipsisType):
        return output_schema(signature.returns)
    return (None if given is None else dict(given)), False


def _check(kind: DefinitionKind, definition: dict[str, Any], signature: "Signature") -> None:
    try:
        check_json(definition)
        kind.check(definition)
    except DefinitionError as error:
        raise error.inside(source=signature.label) from None


def _check_variables(signature: "Signature", template: UriTemplate | None) -> None:
    from portico.core.definitions.shapes import check_shape

    variables = template.variables if template is not None else ()
    optional = template.optional if template is not None else ()
    parameters = {parameter.name: parameter for parameter in signature.parameters}
    for name in variables:
        if name not in parameters:
            raise signature.error(f"has no parameter for {{{name}}} of the URI template")
        if name in optional and parameters[name].required:
            raise signature.error("needs a default: a URI may leave it out", name)
    for parameter in signature.parameters:
        if parameter.required and parameter.name not in (*variables, "uri"):
            raise signature.error("is not a variable of the URI template", parameter.name)
        check_shape(signature, parameter)
