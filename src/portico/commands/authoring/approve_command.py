"""`portico approve`: allow the rights of a bundle, for clients that have no terminal."""

import argparse
import os
import sys

from portico.commands.console.bundle_approval import accept_bundle, show_wishes
from portico.commands.console.dialog import Declined, Dialog
from portico.commands.console.parser import Parser
from portico.commands.console.render import Screen
from portico.core.config.paths import config_file, state_folder
from portico.library.bundles.approvals import Approvals, wish_lines
from portico.library.bundles.bundle_reader import open_bundle_file
from portico.library.components.resolver import is_registry_reference
from portico.upstream.process.family import refuse_below_agent


def main(argv: list[str]) -> int:
    """Show the rights of a bundle, ask, and remember them."""
    options = _parser().parse_args(argv)
    refuse_below_agent("portico approve")
    path, origin = _place(options)
    with open_bundle_file(path) as bundle:
        bundle.verify()
        approvals = Approvals(state_folder())
        missing = approvals.missing(bundle, origin)
        if not missing:
            what = (
                "all rights are approved already" if bundle.contents.wishes else "needs no rights"
            )
            Screen(sys.stdout).print(f"{options.bundle}: {what}")
            return 0
        dialog = Dialog(yes=options.yes)
        has_changed = approvals.has_changed(origin)
        show_wishes(dialog.out, options.bundle, wish_lines(missing), has_changed=has_changed)
        if not options.yes and not sys.stdin.isatty():
            raise Declined("nothing was changed: there is no terminal to ask at; add --yes")
        if dialog.choose("Allow this? [y]es, [n]o: ", "yn" if options.yes else "ny") != "y":
            raise Declined("nothing was changed")
        accept_bundle(bundle, origin)
        dialog.out.print("approved")
    return 0


def _place(options: argparse.Namespace) -> tuple[str, str]:
    """Return the file of a bundle, and by what its approval is remembered."""
    if os.path.exists(options.bundle) or not is_registry_reference(options.bundle):
        return options.bundle, os.path.realpath(options.bundle)
    from portico.library.components.registry_resolver import find_pulled

    found = find_pulled(options.config or config_file(), options.bundle)
    return found.path, found.reference.origin


def _parser() -> Parser:
    parser = Parser(
        prog="portico approve",
        description="Show the rights that a bundle needs, such as commands that it starts and "
        "Python code without a sandbox, and allow them on this machine. `portico run` "
        "prompts for the same at a terminal; a client has none.",
        epilog="example: portico approve server.portico",
    )
    what = "a file that `portico compose` wrote, or a reference that was pulled"
    parser.add_argument("bundle", metavar="BUNDLE", help=what)
    parser.add_config()
    parser.add_argument("--yes", "-y", action="store_true", help="allow them without a question")
    return parser
