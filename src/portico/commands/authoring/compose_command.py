"""`portico compose`: write components, with everything that they need, to one file."""

import argparse
import asyncio
import os
import re
import shlex
import sys
from collections.abc import Sequence

from portico.commands.authoring.collected import CollectedBundle
from portico.commands.console.argument_types import repeatable
from portico.commands.console.bundle_approval import accept_bundle
from portico.commands.console.parser import Parser
from portico.commands.console.render import Screen, size
from portico.core.config.component_grants import InvalidGrant
from portico.core.config.expand import is_elsewhere
from portico.core.config.paths import state_folder
from portico.core.documents.problems import suggestion
from portico.core.model.wording import counted
from portico.core.state.report import report
from portico.library.bundles.approvals import Approvals
from portico.library.bundles.bundle_reader import open_bundle_file
from portico.library.bundles.bundle_writer import write_bundle
from portico.library.bundles.contents import BundleError
from portico.library.bundles.wanted_grants import check_wanted
from portico.library.components.aliases import ConfigAliases
from portico.library.components.classify import Component, ComponentError
from portico.library.components.granted import named_grants
from portico.library.components.resolution import (
    components_of,
    default_resolvers,
    resolve_components,
    with_handlers,
)

_TRANSPORT = r"stdio|http(:[1-9][0-9]{0,4})?"


def main(argv: list[str]) -> int:
    """Compose a bundle, and say what it is."""
    parser = _parser()
    options = parser.parse_intermixed_args(argv)
    if not options.component and not options.profile:
        parser.error("give a COMPONENT, or a profile with -p")
    if options.t and options.transport:
        parser.error("-t and --transport exclude each other: remove one")
    _check_output(options.output, force=options.force)
    components, overridden = _components(options)
    data = CollectedBundle().compose(
        components,
        overridden=overridden,
        grants=_wanted(components, options.grant),
        transport=options.transport or options.t or "stdio",
        name=options.name or "",
        prefixed=options.prefix,
        shadows=options.shadow,
    )
    digest = write_bundle(options.output, data, force=options.force)
    _approve(options.output, components)
    screen = Screen(sys.stdout)
    parts = counted(len(components), "component")
    screen.print(f"{options.output}: {parts}, {size(len(data))}, {digest}")
    screen.print(f"run it with `portico run {shlex.quote(options.output)}`")
    return 0


def _approve(path: str, components: Sequence[Component]) -> None:
    """Approve a bundle for the person who composed it, and so has named every part of it.

    A bundle around one that is not approved is left to `portico approve`.
    """
    origins = {one.name: os.path.realpath(one.path) for one in components if one.kind == "bundle"}
    approvals, how = Approvals(state_folder()), f"run `portico approve {shlex.quote(path)}`"
    try:
        with open_bundle_file(path) as bundle:
            for name, inner in bundle.inner():
                if approvals.missing(inner, origins[name]):
                    report(
                        f"{path}: {name} in it needs rights that are not approved here; "
                        f"{how} to read and allow them"
                    )
                    return
            accept_bundle(bundle, os.path.realpath(path))
    except BundleError as error:
        report(f"{error}; then {how}")


def _check_output(path: str, *, force: bool) -> None:
    """Raise BundleError before any work if the file cannot be written."""
    if os.path.isdir(path):
        raise BundleError(f"{path}: a folder; give the name of a file in it")
    if os.path.exists(path) and not os.path.isfile(path):
        raise BundleError(f"{path}: not a regular file; give another name")
    if os.path.lexists(path) and not force:
        raise BundleError(f"{path}: exists already; give another name, or --force to replace it")
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise BundleError(f"{path}: there is no folder {folder}; create it first")


def _components(options: argparse.Namespace) -> tuple[list[Component], dict[str, str]]:
    """Return the components in order, and by name what each override replaced."""
    aliases = ConfigAliases(options.config)
    for name in options.profile:
        if name not in aliases.profiles:
            hint = suggestion(name, aliases.profiles) or "add one with `portico profiles add`"
            raise ComponentError(f"there is no profile {name[:80]!r}; {hint}")
    resolvers = default_resolvers(aliases, as_files=True)
    arguments = [*options.profile, *options.component]

    def resolved(overrides: Sequence[str]) -> list[Component]:
        found = asyncio.run(resolve_components(arguments, overrides, resolvers))
        return with_handlers(components_of(found), options.handlers)

    components = resolved(options.override)
    _check_references(components, aliases)
    names = [one.partition("=")[0] for one in options.override]
    before = {one.name: one for one in resolved(())} if names else {}
    return components, {name: os.path.basename(before[name].argument) for name in names}


def _check_references(components: Sequence[Component], aliases: ConfigAliases) -> None:
    """Raise ComponentError if the value of a reference, which may be a secret, would be in it."""
    for one in components:
        if not (one.is_alias and any(map(is_elsewhere, aliases.written(one.argument)))):
            continue
        place = "URL" if one.url else "command line"
        what = f"{one.label}: its {place} refers to a value, which would be in the bundle"
        how = "write it out" if one.url else "write it out, or let its server read it from its env"
        raise ComponentError(f"{what}; {how}")


def _wanted(components: Sequence[Component], grants: Sequence[str]) -> dict[str, list[str]]:
    """Return the grants that components require, by name; raises ComponentError."""
    found: dict[str, list[str]] = {}
    for name, line in named_grants(components, grants):
        try:
            check_wanted(line)
        except InvalidGrant as error:
            raise ComponentError(f"--grant {name}:{error}") from None
        if line not in found.setdefault(name, []):
            found[name].append(line)
    return found


def _transport(text: str) -> str:
    if not re.fullmatch(_TRANSPORT, text) or int(text.partition(":")[2] or 1) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not stdio, http or http:PORT")
    return text


def _parser() -> Parser:
    parser = Parser(
        prog="portico compose",
        description="Write components to one file, a bundle, that `portico run` serves the same "
        "everywhere. Files and the modules beside them are in it; programs that a command names "
        "are not. Nothing is run. The same input gives the same bytes.",
        epilog="example: portico compose log.py calc.py tools.json -o server.portico",
    )
    add = parser.add_argument
    what = "as in `portico run`: a file, a bundle, a quoted command, a URL, an alias or a profile"
    add("component", nargs="*", metavar="COMPONENT", help=what)
    add("-o", "--output", metavar="FILE", required=True, help="the bundle to write")
    what = "how it is served, unless `portico run` names another: stdio, http or http:PORT"
    add("-t", type=_transport, metavar="TRANSPORT", help=what)
    what = "serve it over a transport of your own, which is put into the bundle"
    add("--transport", metavar="FILE.py[:NAME]", help=what)
    what = "use another component in place of the one with this name"
    repeatable(add, "--override", str, "NAME=COMPONENT", what)
    what = "the components of a profile, before the others; repeatable"
    add("-p", "--profile", action="append", default=[], metavar="PROFILE", help=what)
    what = (
        "a grant that a sandboxed component requires where it runs, such as calc:files=~/notes:ro"
    )
    repeatable(add, "--grant", str, "NAME:KEY=VALUE", what)
    add("--handlers", metavar="FILE", help="Python file with the functions for a definitions file")
    parser.add_flag("--prefix", "name each tool after its component, such as calc__add")
    what = "a tool, prompt or resource of one component that hides that of a later one"
    repeatable(add, "--shadow", str, "NAME", what)
    add("--name", help="name of the server (default: as `portico run` names it)")
    parser.add_flag("--force", "replace the bundle if it exists")
    parser.add_config()
    return parser
