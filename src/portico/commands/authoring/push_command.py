"""`portico push`: a component or a bundle to a registry, with a signature if wanted."""

import argparse
import asyncio
import os
import sys

from portico.commands.authoring.published_config import PublishedConfig
from portico.commands.console.parser import Parser
from portico.commands.console.render import Screen, size
from portico.library.distribution.manifest import DESCRIPTION, FUNCTIONS
from portico.library.wasm.sidecar import ENDING, parse_sidecar, sidecar_text
from portico.upstream.process.family import refuse_below_agent

DEFAULT_KEY = "portico.key"
"""The private key beside the config."""


def main(argv: list[str]) -> int:
    """Push one file."""
    parser = _parser()
    options = parser.parse_args(argv)
    refuse_below_agent("portico push")
    if options.key is not None and not options.sign:
        parser.error("--key is for --sign")
    annotations = _annotations(parser, options) | _functions(parser, options)
    found = PublishedConfig(options.config)
    reference = found.reference(options.reference)
    key = None
    if options.sign:
        from portico.library.distribution.keys import private_key

        key = private_key(options.key or default_key(found.path))
    from portico.commands.authoring.transfer_bar import transfer_bar
    from portico.library.distribution.push import Pusher

    pusher = Pusher(found.publishing, found.cache, transfer_bar())
    pushed = asyncio.run(pusher.push(options.file, reference, annotations, key))
    if options.json:
        Screen(sys.stdout).data(
            {
                "reference": str(pushed.reference),
                "digest": pushed.reference.digest,
                "size": pushed.size,
                "signed": options.sign,
            }
        )
        return 0
    was = "" if pushed.was_sent else ", which the registry had already"
    signed = ", signed" if options.sign else ""
    Screen(sys.stdout).print(f"pushed {pushed.reference} ({size(pushed.size)}{was}){signed}")
    return 0


def default_key(config_path: str) -> str:
    """Return the path of the private key that signs unless another is given."""
    return os.path.join(os.path.dirname(os.path.abspath(config_path)), DEFAULT_KEY)


def _annotations(parser: Parser, options: argparse.Namespace) -> dict[str, str]:
    found: dict[str, str] = {}
    for one in options.annotation:
        name, equals, value = one.partition("=")
        if not equals or not name:
            parser.error("--annotation needs NAME=VALUE")
        found[name] = value
    if options.description is not None:
        found[DESCRIPTION] = options.description
    return found


def _functions(parser: Parser, options: argparse.Namespace) -> dict[str, str]:
    """Return the annotation with the descriptions beside a component; raises PorticoError."""
    path = options.file + ENDING
    text = sidecar_text(path) if options.file.endswith(".wasm") else ""
    if not text:
        return {}
    if any(one.startswith(f"{FUNCTIONS}=") for one in options.annotation):
        parser.error(f"--annotation {FUNCTIONS}: {path} has the descriptions; remove one of them")
    parse_sidecar(text, path)
    return {FUNCTIONS: text}


def _parser() -> Parser:
    from portico.commands.console.argument_types import repeatable

    parser = Parser(
        prog="portico push",
        description="Push a .wasm component or a bundle to a registry.",
        epilog="example: portico push --sign calc.wasm oci://registry.example/team/calc:1.0",
    )
    add = parser.add_argument
    add("file", metavar="FILE", help="a .wasm component or a bundle")
    add("reference", metavar="REFERENCE", help="oci://HOST/NAME:TAG, or NS:NAME@VERSION")
    parser.add_flag("--sign", "sign it, in cosign's format")
    what = f"the private key to sign with (default: {DEFAULT_KEY} beside the config)"
    add("--key", metavar="FILE", help=what)
    add("--description", metavar="TEXT", help="a description that registries show")
    repeatable(add, "--annotation", str, "NAME=VALUE", "an annotation of its manifest")
    parser.add_config()
    parser.add_json()
    return parser
