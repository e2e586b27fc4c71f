"""A short summary of the gateway's servers, so that a model knows what to search for.

A model trusts this text as Portico's own. So it contains no text of a server, only single words
from the names of its tools.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct

from portico.core.catalog.namespaced import NamespacedOffer

MAX_COST = 1000
"""The limit for all servers, about four to a token: a model reads it in every conversation."""
_MAX_ABOUT = 70
_MAX_READ = 60
"""The number of tool names read from each server."""
_MAX_TOPICS = 4
_MAX_TOPIC = 20
"""The letters of a word; a longer one may be a sentence without spaces."""
_PLAIN = re.compile(r"[A-Za-z0-9_./-]{1,128}")
"""The names that the specification allows; others are ignored."""
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_COMMON_WORDS = """
    a add all and apply ask at batch begin bulk by call cancel change check clear close compare
    copy count create delete describe disable do download edit enable execute export fetch filter
    find for from generate get has import in info insert into is list load lookup make manage
    merge move multiple of on open or post put query read remove rename replace reset resolve
    retrieve run save search send set show simple start stop submit subscribe sync test the to
    toggle tool trigger unsubscribe update upload upsert use validate verify view with write
"""
_IGNORED_WORDS = frozenset(_COMMON_WORDS.split())


class ServerSummary(Struct, frozen=True):
    """The parts of a server that its summary is made from."""

    name: str
    about: str
    """The description in the config."""
    namespaced: NamespacedOffer | None
    """None if its catalog is not known yet."""


def summarize(servers: Sequence[ServerSummary]) -> str:
    """Summarize all servers; the more there are, the shorter each summary."""
    if not servers:
        return "no servers yet"
    for describe in (_fully, _counted, lambda server: server.name):
        words = ", ".join(map(describe, servers))
        if _cost(words) <= MAX_COST:
            return words
    names: list[str] = []
    size = 0
    for server in servers:
        size += _cost(server.name) + 2
        if size > MAX_COST - 20:
            break
        names.append(server.name)
    return f"{', '.join(names)} and {len(servers) - len(names)} more"


def _cost(words: str) -> int:
    """Return the length; digits and characters beyond ASCII count twice, as they do in tokens."""
    return len(words) + sum(char.isdigit() or not char.isascii() for char in words)


def _fully(server: ServerSummary) -> str:
    if server.namespaced is None:
        return f"{server.name} (starting)"
    about = _short(server.about) or ", ".join(topics(server.name, server.namespaced))
    count = len(server.namespaced.listed("tools").keys)
    return f"{server.name} ({count}: {about})" if about else f"{server.name} ({count})"


def _counted(server: ServerSummary) -> str:
    if server.namespaced is None:
        return f"{server.name} (starting)"
    return f"{server.name} ({len(server.namespaced.listed('tools').keys)})"


def topics(server: str, namespaced: NamespacedOffer) -> list[str]:
    """Return the most common nouns in the names of a server's tools, in alphabetical order, so that
    the server cannot form a sentence."""
    seen: Counter[str] = Counter()
    own = {word.lower() for word in _WORDS.findall(server)}
    for name in namespaced.listed("tools").keys[:_MAX_READ]:
        if _PLAIN.fullmatch(name):
            seen.update(_things(name, own))
    for plural in [word for word in seen if word.endswith("s") and word[:-1] in seen]:
        seen[plural[:-1]] += seen.pop(plural)
    return sorted(word for word, _ in seen.most_common(_MAX_TOPICS))


def _things(name: str, own: set[str]) -> Iterable[str]:
    words = {word.lower() for word in _WORDS.findall(name)}
    return sorted(word for word in words - _IGNORED_WORDS - own if 2 < len(word) <= _MAX_TOPIC)


def _short(about: str) -> str:
    words = " ".join(about.split())
    return words if len(words) <= _MAX_ABOUT else f"{words[: _MAX_ABOUT - 1].rstrip()}…"
