"""The grants of a command line: `--grant NAME:KEY=VALUE` for a sandboxed component."""

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from portico.core.config.component_grants import InvalidGrant
from portico.core.config.expand import Unresolved
from portico.core.model.wording import close_matches, did_you_mean, printable
from portico.library.components.classify import Component, ComponentError, InvalidArgument
from portico.library.components.wasm_process import with_grants


def granted(
    components: Sequence[Component], grants: Iterable[str], option: str = "--grant"
) -> list[Component]:
    """Return the components with more grants; raises ComponentError, which names the option."""
    found = {one.name: one for one in components}
    for name, line in named_grants(components, grants):
        found[name] = _with(found[name], line, option)
    return list(found.values())


def named_grants(
    components: Sequence[Component], grants: Iterable[str]
) -> Iterator[tuple[str, str]]:
    """Yield the component's name and the grant of each; raises ComponentError."""
    found = {one.name: one for one in components}
    for grant in grants:
        name, colon, line = grant.partition(":")
        if not colon or "=" not in line:
            shown = printable(grant.partition("=")[0])[:80]
            raise InvalidArgument(f"--grant {shown}: write NAME:KEY=VALUE, as calc:files=DIR:ro")
        if name not in found:
            near = did_you_mean(close_matches(name, found))
            hint = near or f"the components are {', '.join(found)}"
            raise ComponentError(f"--grant: there is no component {name[:80]!r}; {hint}")
        if found[name].kind == "bundle":
            how = "compose it again with them"
            raise ComponentError(f"--grant: {name} is a bundle, which names its own grants; {how}")
        if found[name].kind != "wasm":
            what = "is not sandboxed, so nothing can be granted to it"
            raise ComponentError(f"--grant: {name} {what}; it has your rights already")
        yield name, line


def _with(component: Component, line: str, option: str) -> Component:
    entry = component.entry
    assert entry is not None, "a sandboxed component is a server"
    try:
        return replace(component, entry=with_grants(entry, [line]))
    except InvalidGrant as error:
        raise ComponentError(f"{option} {component.name}:{error}") from None
    except Unresolved as error:
        key = line.partition("=")[0]
        raise ComponentError(
            f"{option} {component.name}:{key}: {error.what}; {error.remedy}"
        ) from None
