"""Scores of tools for a query; the weights of fields are in `index.py`."""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from heapq import nlargest
from typing import NamedTuple

from portico.gateway.search.postings import Postings
from portico.gateway.search.synonyms import acting, widen
from portico.gateway.search.tokens import terms

SYNONYM = 0.5
"""The weight of a synonym: half that of the word itself, so that the word wins."""
NAMED = 0.5
"""The bonus of a tool whose name the query covers: up to half of its score."""
UNASKED = 0.6
"""The factor of a tool that acts in a way that a question does not mention: a question for the time
should not find a converter of times."""
UNNAMED = 0.3
"""The factor of a server's score if the query does not name the server."""
TURN, TURNS = 0.95, 10
"""The factor of a tool for each better one of its clause, ten at most: the first five hits should
not all serve one step of a task."""
FRONT = 100
"""How many tools take turns, more than a search returns. The others get the lowest factor."""
MAX_QUERY = 4_000
"""Characters of a query that are read, which bounds its clauses."""

# The start of another clause. A full stop inside a word, as in "report.pdf", ends nothing.
_BREAK = re.compile(
    r"[.!?;:\n]+(?:\s|$)|,\s|\b(?:and|then|also|additionally|after|before|finally|next)\b",
    re.IGNORECASE,
)
# A question for a fact; "How do I ..." is a task.
_QUESTION = re.compile(
    r"\s*(?:what|which|who|whose|when|where|is|are|was|were|does|did"
    r"|how\s+(?:many|much|long|old|far|is|are))\b",
    re.IGNORECASE,
)


class Tables(NamedTuple):
    """The postings of tools and servers, each by text and by name."""

    tools: Postings
    names: Postings
    servers: Postings
    server_names: Postings
    server_of: list[int]


def rank(tables: Tables, query: str) -> dict[int, float]:
    """Return the score of every tool that matches, with clauses taking turns."""
    return in_turn(*weigh(tables, query))


def weigh(tables: Tables, query: str) -> tuple[dict[int, float], dict[int, int]]:
    """Return the score of each tool, and its best clause if there are several."""
    query = query[:MAX_QUERY]
    wide = widen(terms(query), SYNONYM, tables.tools.rarity)
    scores = tables.tools.add_up(wide)
    parts = clauses(query)
    clause_of: dict[int, int] = {}
    if len(parts) > 1:
        best, clause_of = _best_clauses(tables.tools, [terms(part) for part in parts])
        scores = {place: (whole + best.get(place, 0.0)) / 2 for place, whole in scores.items()}
    named = tables.names.add_up(wide)
    servers = _servers(tables, wide)
    server_of = tables.server_of
    scores = {
        place: score * (1 + NAMED * named.get(place, 0.0)) + servers.get(server_of[place], 0.0)
        for place, score in scores.items()
    }
    if _QUESTION.match(query):
        unasked = acting() - wide.keys()
        for place in {place for term in unasked for place in tables.names.having(term)}:
            if place in scores:
                scores[place] *= UNASKED
    return scores, clause_of


def _best_clauses(
    tools: Postings, clauses: Sequence[Sequence[str]]
) -> tuple[dict[int, float], dict[int, int]]:
    """Return for each tool the score and number of its best clause."""
    best: dict[int, float] = {}
    clause_of: dict[int, int] = {}
    for number, clause in enumerate(clauses):
        for place, score in tools.add_up(widen(clause, SYNONYM, tools.rarity)).items():
            if score > best.get(place, 0.0):
                best[place] = score
                clause_of[place] = number
    return best, clause_of


def in_turn(scores: dict[int, float], clause_of: Mapping[int, int]) -> dict[int, float]:
    """Lower each further tool of one clause a little, so that all clauses are served."""
    if not clause_of:
        return scores
    turns: defaultdict[int, int] = defaultdict(int)
    last = TURN**TURNS
    fair = {place: score * last for place, score in scores.items()}
    for place in nlargest(FRONT, scores, key=scores.__getitem__):
        clause = clause_of.get(place, -1)
        fair[place] = scores[place] * TURN ** min(turns[clause], TURNS)
        turns[clause] += 1
    return fair


def clauses(query: str) -> list[str]:
    """Return the parts of a query that have two terms or more."""
    parts = (part.strip() for part in _BREAK.split(query[:MAX_QUERY]))
    return [part for part in parts if len(set(terms(part))) > 1]


def _servers(tables: Tables, wide: Mapping[str, float]) -> dict[int, float]:
    """Return the bonus of each server's tools, lower if the query does not name the server."""
    named = tables.server_names.add_up(wide)
    return {
        server: score * (UNNAMED + (1 - UNNAMED) * named.get(server, 0.0))
        for server, score in tables.servers.add_up(wide).items()
    }
