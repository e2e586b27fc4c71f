"""`portico key`: keys to sign with, and the keys that the config trusts."""

import argparse
import sys
from typing import Any

from portico.commands.authoring.published_config import PublishedConfig
from portico.commands.authoring.push_command import DEFAULT_KEY, default_key
from portico.commands.console.parser import Parser
from portico.commands.console.render import Screen
from portico.commands.console.tables import aligned
from portico.core.config.publishing import TrustedKey
from portico.library.distribution.distribution_error import DistributionError
from portico.library.distribution.keys import fingerprint, new_key, public_key_file
from portico.upstream.process.family import refuse_below_agent

_USAGE = """\
portico key new [FILE] [--config FILE]
       portico key list [--config FILE] [--json]"""
_NEW, _LIST = "new", "list"


def main(argv: list[str]) -> int:
    """Make a key, or list the trusted ones."""
    parser = _parser()
    options = parser.parse_args(argv)
    refuse_below_agent("portico key")
    if options.action == _NEW:
        return _new(options)
    if options.file is not None:
        parser.error("key list takes no FILE")
    return _list(options)


def _new(options: argparse.Namespace) -> int:
    from portico.core.config.paths import config_file

    path = options.file or default_key(options.config or config_file())
    digest = new_key(path)
    screen = Screen(sys.stdout)
    screen.print(f"{path}: your private key; keep it to yourself")
    screen.print(f"{path}.pub: the public key ({digest}), for the [trust.keys] of others")
    return 0


def _list(options: argparse.Namespace) -> int:
    found = PublishedConfig(options.config)
    keys = {name: _data(key) for name, key in found.publishing.trust.keys.items()}
    screen = Screen(sys.stdout)
    if options.json:
        screen.data([{"name": name, **about} for name, about in keys.items()])
        return 0
    if not keys:
        screen.print(
            f"{found.path}: no key is trusted; "
            "add a table [trust.keys.NAME] with file and signs_for"
        )
        return 0
    rows = [("key", "state", "signs for", "digest of the key")]
    rows += [
        (name, about["problem"] or about["state"], ", ".join(about["signs_for"]), about["digest"])
        for name, about in keys.items()
    ]
    for line in aligned(rows):
        screen.print(line)
    return 1 if any(about["problem"] for about in keys.values()) else 0


def _data(key: TrustedKey) -> dict[str, Any]:
    digest = problem = ""
    try:
        digest = fingerprint(public_key_file(key.file))
    except DistributionError as error:
        problem = str(error)
    return {
        "state": "retired" if key.retired else "trusted",
        "signs_for": list(key.signs_for),
        "file": key.file,
        "digest": digest,
        "problem": problem,
    }


def _parser() -> Parser:
    parser = Parser(
        prog="portico key",
        usage=_USAGE,
        description="Make a key to sign components with, or list the keys that the config trusts.",
    )
    add = parser.add_argument
    what = "new makes a private key and its public key beside it; list shows the trusted keys"
    add("action", choices=(_NEW, _LIST), help=what)
    what = f"the file of the new private key (default: {DEFAULT_KEY} beside the config)"
    add("file", nargs="?", metavar="FILE", help=what)
    parser.add_config()
    parser.add_json()
    return parser
