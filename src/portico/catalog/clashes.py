"""Resources that two servers claim: which server gets them, in words for the operator."""

from collections import Counter
from collections.abc import Iterator

from portico.catalog.resource_routing import ResourceRouting
from portico.catalog.sanitize import sanitize_text
from portico.catalog.uris import canonical, canonical_template

MAX_CLASHES = 20
"""Clashes that are told of each server."""
_MAX_TRIED = 10_000
"""Matches tried in all: a server with thousands of templates must not make others wait."""
_MAX_LISTED = 2_000
_LONGEST = 80


def clashes(routing: ResourceRouting) -> dict[str, list[str]]:
    """By server, what it claims that another one owns, or owns although another one matches it."""
    found: dict[str, list[str]] = {}
    if len(routing.servers) > 1:
        for server, words in _all(routing):
            told = found.setdefault(server, [])
            if len(told) < MAX_CLASHES and words not in told:
                told.append(words)
    return found


def _all(routing: ResourceRouting) -> Iterator[tuple[str, str]]:
    yield from _claimed_twice(routing)
    yield from _overlapping(routing)
    for server, one in routing.schemeless:
        yield (
            server,
            f"template {_short(one.text)} of {server} has no scheme: it serves only URIs that no "
            "other server lists, matches or mentions",
        )


def _claimed_twice(routing: ResourceRouting) -> Iterator[tuple[str, str]]:
    for kind, owners, same in (
        ("resources", routing.listed, canonical),
        ("templates", routing.templates, canonical_template),
    ):
        for server, owned in routing.servers.items():
            keys = owned.uris if kind == "resources" else owned.templates
            theirs = [(owners[same(key)], key) for key in keys if owners[same(key)] != server]
            many = Counter(owner for owner, _ in theirs)
            first = dict(reversed(theirs))
            for owner, count in many.items():
                yield (
                    server,
                    f"{count} {kind} of {server} are listed by {owner} too, which comes first "
                    f"(such as {_short(first[owner])}): shown as portico://{server}/...",
                )


def _overlapping(routing: ResourceRouting) -> Iterator[tuple[str, str]]:
    tried = 0
    known: set[tuple[str, ...]] = set()
    for server, uri, kind, text in _claims(routing):
        same = canonical(uri)
        for _, other, one in routing.candidates(same):
            pair = (server, kind, other, one.text)
            if other == server or one.template.text == text or pair in known:
                continue
            tried += 1
            if tried > _MAX_TRIED:
                return
            if not one.may_match(same) or not one.matches(same):
                continue
            known.add(pair)
            owner = routing.owner(uri)
            yield (
                server,
                f"{kind} of {server} match {_short(one.text)} of {other}: {owner} serves them",
            )


def _claims(routing: ResourceRouting) -> Iterator[tuple[str, str, str, str]]:
    """A URI for each template, and all that are listed: whose it is, what, and its template."""
    for server, one in routing.patterns:
        if one.has_scheme:
            yield server, one.sample, f"URIs of template {_short(one.text)}", one.template.text
    for server, owned in routing.servers.items():
        for uri in owned.uris[:_MAX_LISTED]:
            yield server, uri, "resources", ""


def _short(uri: str) -> str:
    words = " ".join(sanitize_text(uri).split())
    return words if len(words) <= _LONGEST else f"{words[: _LONGEST - 1]}…"
