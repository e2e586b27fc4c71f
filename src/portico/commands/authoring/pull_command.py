"""`portico pull`: components from registries, checked, cached and locked."""

import asyncio
import sys
from typing import Any

from portico.commands.authoring.published_config import PublishedConfig
from portico.commands.authoring.transfer_bar import transfer_bar
from portico.commands.console.parser import Parser
from portico.commands.console.render import Screen, size
from portico.library.distribution.distribution_error import DistributionError
from portico.library.distribution.manifest import DESCRIPTION
from portico.library.distribution.pull import Pulled, Puller
from portico.upstream.process.family import refuse_below_agent


def main(argv: list[str]) -> int:
    """Pull components one after the other."""
    options = _parser().parse_args(argv)
    refuse_below_agent("portico pull")
    found = PublishedConfig(options.config)
    references = [found.reference(one) for one in options.reference or configured(found)]
    if not references:
        raise DistributionError(
            f"{found.path}: no component has a reference; "
            "give one: portico pull oci://HOST/NAME:TAG"
        )
    puller = Puller(found.publishing, found.lock, found.cache, transfer_bar())
    screen = Screen(sys.stdout)
    shown: list[dict[str, Any]] = []
    for reference in references:
        pulled = asyncio.run(puller.pull(reference, update=options.update))
        if options.json:
            shown.append(_data(pulled))
        else:
            for line in _lines(pulled):
                screen.print(line)
    if options.json:
        screen.data(shown)
    return 0


def configured(found: PublishedConfig) -> list[str]:
    """Return the references of the enabled components of a config."""
    components = found.config.components.values()
    return list(dict.fromkeys(one.oci for one in components if one.enabled and one.oci))


def _lines(pulled: Pulled) -> list[str]:
    lines = [f"pulled {pulled.reference} ({size(pulled.size)})"]
    if pulled.is_offline:
        lines = [f"{pulled.reference}: the registry cannot be reached; the cached one is used"]
    if pulled.annotations.get(DESCRIPTION):
        lines.append(f"  {pulled.annotations[DESCRIPTION]}")
    if pulled.signed_by is None:
        lines.append("  not signed, which your [trust] allows")
    else:
        at = pulled.signed_by.claimed_at
        claimed = f"; the signer claims the time {at}" if at else ""
        lines.append(f"  signed by {pulled.signed_by.key}{claimed}")
    return lines


def _data(pulled: Pulled) -> dict[str, Any]:
    by = pulled.signed_by
    return {
        "reference": str(pulled.reference),
        "digest": pulled.reference.digest,
        "kind": pulled.kind,
        "size": pulled.size,
        "path": pulled.path,
        "annotations": dict(pulled.annotations),
        "signed_by": None if by is None else {"key": by.key, "claimed_at": by.claimed_at},
        "offline": pulled.is_offline,
    }


def _parser() -> Parser:
    parser = Parser(
        prog="portico pull",
        description="Pull components from registries: check their signatures and digests, keep "
        "them in the cache, and write their digests to portico.lock beside the config. Without a "
        "REFERENCE, all components of the config that have one.",
        epilog="example: portico pull oci://registry.example/team/calc:1.0",
    )
    add = parser.add_argument
    what = "oci://HOST/NAME:TAG, oci://HOST/NAME@DIGEST or NS:NAME@VERSION"
    add("reference", nargs="*", metavar="REFERENCE", help=what)
    parser.add_flag("--update", "accept a tag that moved since the last pull")
    parser.add_config()
    parser.add_json()
    return parser
