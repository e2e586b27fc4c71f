"""Groups of synonyms in the names and descriptions of tools."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import cache

from portico.gateway.search.tokens import stem

# Everyday words of tools; a word may be in several groups.
_GROUPS = """
    add build create generate make new
    change edit modify update
    clear delete drop erase remove
    display enumerate list show
    discover find lookup query search
    download fetch obtain read retrieve
    deliver post send
    attach upload
    clone copy duplicate
    save store write
    execute launch run start
    cancel end stop terminate
    check validate verify
    compare comparison difference
    recommend recommendation suggest suggestion
    analysis analyze examine
    calculate calculator compute math
    conversion convert transform
    abstract summarize summary
    language translate translation
    authenticate login signin
    capture screenshot
    email gmail inbox mail
    chat message sms
    image photo picture
    clip film movie video
    audio music song track
    speech voice
    phone telephone mobile
    doc document file
    directory folder
    page site url webpage website
    excel sheet spreadsheet workbook
    powerpoint presentation slide
    article paper publication research
    headline news
    book novel
    memo note
    chart diagram graph plot visualize
    appointment calendar event meeting schedule
    reminder task todo
    repo repository
    bug issue ticket
    error exception failure
    history log
    database sql table
    command shell terminal
    code program programming script
    account profile user
    client customer
    employee staff
    child kid
    people person
    business company firm organization
    buy order purchase shop
    cost price quote
    equity stock ticker
    bitcoin coin crypto cryptocurrency
    currency money
    forecast temperature weather
    geocode location map place
    direction navigation route
    city town
    country nation
    dining food restaurant
    cook dish meal recipe
    airline airport flight
    accommodation hotel lodging
    itinerary travel trip vacation
    career employment job
    apartment home house property
    doctor health medical physician
    drug medication medicine
    disease illness
    attorney law lawyer legal
    automobile car vehicle
    game gaming play
    match sport team
    class course learn lesson
"""

# Verbs of tools that make, change or send something instead of only reading.
_ACTING = """
    add approve assign attach book build buy cancel change clear clone close conversion convert copy
    create delete deliver disable drop duplicate edit enable end erase execute export generate
    import insert launch make merge modify move new open order post remove rename replace reset run
    save send set start stop store submit subscribe terminate transform translate update upload
    write
"""


@cache
def acting() -> frozenset[str]:
    """Return the terms of names of tools that do more than read."""
    return frozenset(map(stem, _ACTING.split()))


@cache
def _others() -> Mapping[str, frozenset[str]]:
    others: dict[str, set[str]] = defaultdict(set)
    for line in _GROUPS.strip().splitlines():
        group = {stem(word) for word in line.split()}
        for word in group:
            others[word] |= group - {word}
    return {word: frozenset(group) for word, group in others.items()}


def widen(terms: Iterable[str], weight: float, rarity: Callable[[str], float]) -> dict[str, float]:
    """Return the terms with weight 1, and their synonyms with the given weight or less.

    A synonym that is rarer than its word would score higher than the word; its weight is capped.
    """
    wide = dict.fromkeys(terms, 1.0)
    others = _others()
    for term in list(wide):
        for other in sorted(others.get(term, ())):
            fair = min(1.0, rarity(term) / rarity(other))
            wide.setdefault(other, weight * fair)
    return wide


@cache
def _written() -> Mapping[str, tuple[str, ...]]:
    """Return the words of each term's groups, as they are written."""
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for line in _GROUPS.strip().splitlines():
        group = line.split()
        for word in group:
            found[stem(word)] |= dict.fromkeys(group)
    return {term: tuple(words) for term, words in found.items()}


def related(terms: Iterable[str]) -> list[str]:
    """Return the synonyms of these terms as words, each once, without the terms themselves."""
    known = dict.fromkeys(terms)
    groups = _written()
    found = dict.fromkeys(word for term in known for word in groups.get(term, ()))
    return [word for word in found if stem(word) not in known]
