"""How well each tool answers a query."""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from heapq import nlargest
from typing import NamedTuple

from portico.search.postings import Postings
from portico.search.synonyms import acting, widen
from portico.search.tokens import terms

SYNONYM = 0.5
"""What a synonym is worth beside the word itself: half, so that the word wins where it exists."""
NAMED = 0.5
"""What a query that covers a tool's name adds to its score: up to half of it."""
UNASKED = 0.6
"""What a tool keeps of its score if the query is a question and the tool acts in a way that the
query does not mention: who asks for the time wants none converted, whatever examples say."""
UNNAMED = 0.3
"""How much of a server's score counts where the query does not name the server."""
TURN, TURNS = 0.95, 10
"""What a tool keeps of its score for each better one of its clause, ten at most: of near equals
the first five should not all serve one step of a task, and no step should bury another."""
FRONT = 100
"""How many tools take turns: more than anyone looks at. The others step back as far as the last."""
MAX_QUERY = 4_000
"""Characters of a query that are read, so that its clauses stay few."""

# Where people begin another wish. A full stop inside a word, as in "report.pdf", ends nothing.
_BREAK = re.compile(
    r"[.!?;:\n]+(?:\s|$)|,\s|\b(?:and|then|also|additionally|after|before|finally|next)\b",
    re.IGNORECASE,
)
# A question for a fact. "How do I ..." asks for something to be done.
_QUESTION = re.compile(
    r"\s*(?:what|which|who|whose|when|where|is|are|was|were|does|did"
    r"|how\s+(?:many|much|long|old|far|is|are))\b",
    re.IGNORECASE,
)


class Tables(NamedTuple):
    """What is looked up: tools and servers, each by text and by name."""

    tools: Postings
    names: Postings
    servers: Postings
    server_names: Postings
    server_of: list[int]


def rank(tables: Tables, query: str) -> dict[int, float]:
    """The score of every tool that has anything of the query, each clause in its turn."""
    return in_turn(*weigh(tables, query))


def weigh(tables: Tables, query: str) -> tuple[dict[int, float], dict[int, int]]:
    """By tool: its score, and the clause that fits it best, where there are several."""
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
    """By tool: the score of the clause that fits it best, and which that is."""
    best: dict[int, float] = {}
    clause_of: dict[int, int] = {}
    for number, clause in enumerate(clauses):
        for place, score in tools.add_up(widen(clause, SYNONYM, tools.rarity)).items():
            if score > best.get(place, 0.0):
                best[place] = score
                clause_of[place] = number
    return best, clause_of


def in_turn(scores: dict[int, float], clause_of: Mapping[int, int]) -> dict[int, float]:
    """Let every clause have its turn: each further tool of one clause steps back a little."""
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
    """The parts of a query that say enough to be searched for: two terms or more."""
    parts = (part.strip() for part in _BREAK.split(query[:MAX_QUERY]))
    return [part for part in parts if len(set(terms(part))) > 1]


def _servers(tables: Tables, wide: Mapping[str, float]) -> dict[int, float]:
    """What a server's tools gain together; it fades where the query does not name the server."""
    named = tables.server_names.add_up(wide)
    return {
        server: score * (UNNAMED + (1 - UNNAMED) * named.get(server, 0.0))
        for server, score in tables.servers.add_up(wide).items()
    }
