"""Resources that two servers claim: which server serves them, in words for the operator."""

from collections import Counter
from collections.abc import Iterator

from portico.core.catalog.resource_routing import ResourceRouting
from portico.core.catalog.sanitize import sanitize_text
from portico.core.catalog.uris import canonical, canonical_template
from portico.core.model.wording import counted

MAX_CLASHES = 20
"""The limit of messages for each server."""
_MAX_TRIED = 10_000
"""The limit of matches: a server with thousands of templates must not delay others."""
_MAX_LISTED = 2_000
_MAX_LENGTH = 80


def clashes(routing: ResourceRouting) -> dict[str, list[str]]:
    """Return, by server, the resources that it claims and another server claims or matches too."""
    found: dict[str, list[str]] = {}
    if len(routing.servers) > 1:
        for server, words in _messages(routing):
            messages = found.setdefault(server, [])
            if len(messages) < MAX_CLASHES and words not in messages:
                messages.append(words)
    return found


def _messages(routing: ResourceRouting) -> Iterator[tuple[str, str]]:
    yield from _claimed_twice(routing)
    yield from _overlapping(routing)
    for server, pattern in routing.schemeless:
        yield (
            server,
            f"template {_short(pattern.text)} of {server} has no scheme: it serves only URIs that "
            "no other server lists, matches or mentions",
        )


def _claimed_twice(routing: ResourceRouting) -> Iterator[tuple[str, str]]:
    for noun, owners, same in (
        ("resource", routing.listed, canonical),
        ("template", routing.templates, canonical_template),
    ):
        for server, resources in routing.servers.items():
            keys = resources.uris if noun == "resource" else resources.templates
            theirs = [(owners[same(key)], key) for key in keys if owners[same(key)] != server]
            many = Counter(owner for owner, _ in theirs)
            first = dict(reversed(theirs))
            for owner, count in many.items():
                shown = routing.prefixed(server, first[owner])
                yield (
                    server,
                    f"{owner}, which comes first, also lists {counted(count, noun)} of {server} "
                    f"(such as {_short(first[owner])}); exposed as {_form(shown, server)}",
                )


def _overlapping(routing: ResourceRouting) -> Iterator[tuple[str, str]]:
    tried = 0
    known: set[tuple[str, ...]] = set()
    for server, uri, kind, text in _claims(routing):
        same = canonical(uri)
        for _, other, pattern in routing.candidates(same):
            pair = (server, kind, other, pattern.text)
            if other == server or pattern.template.text == text or pair in known:
                continue
            tried += 1
            if tried > _MAX_TRIED:
                return
            if not pattern.may_match(same) or not pattern.matches(same):
                continue
            known.add(pair)
            owner = routing.owner(uri)
            yield (
                server,
                f"{kind} of {server} match {_short(pattern.text)} of {other}: {owner} serves them",
            )


def _claims(routing: ResourceRouting) -> Iterator[tuple[str, str, str, str]]:
    """Yield a sample URI of each template and all listed URIs: server, URI, words and template."""
    for server, pattern in routing.patterns:
        if pattern.has_scheme:
            words = f"URIs of template {_short(pattern.text)}"
            yield server, pattern.sample, words, pattern.template.text
    for server, resources in routing.servers.items():
        for uri in resources.uris[:_MAX_LISTED]:
            yield server, uri, "resources", ""


def _form(shown: str, server: str) -> str:
    return f"ui://{server}--..." if shown[:5].lower() == "ui://" else f"portico://{server}/..."


def _short(uri: str) -> str:
    words = " ".join(sanitize_text(uri).split())
    return words if len(words) <= _MAX_LENGTH else f"{words[: _MAX_LENGTH - 1]}…"
