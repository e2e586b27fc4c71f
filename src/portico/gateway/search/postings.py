"""Posting lists with precomputed weights: a query only adds them up."""

import sys
from array import array
from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import log
from typing import TypeAlias, TypeVar

import msgspec

SATURATION = 1.2
"""BM25's k1 at its usual value: repeated terms add less and less."""
LENGTH = 0.5
"""BM25's b: half, since long descriptions of tools are thorough more often than rambling."""

# Python 3.11 cannot subscript arrays when it runs.
Integers: TypeAlias = "array[int]"
Numbers: TypeAlias = "array[int] | array[float]"
A = TypeVar("A", "array[int]", "array[float]")
Field = tuple[float, Sequence[str]]
"""A weight, and the terms of one field."""


class Stored(msgspec.Struct, frozen=True, array_like=True):
    """Postings as stored on disk; numbers are four bytes each, little-endian."""

    terms: list[str]
    starts: bytes
    places: bytes
    weights: bytes


class Postings:
    """For each term the places that have it, and what a match there is worth."""

    def __init__(
        self,
        size: int,
        terms: list[str],
        starts: Integers,
        places: Integers,
        weights: "array[float]",
    ) -> None:
        self._size = size
        self._terms = terms
        self._numbers = {term: number for number, term in enumerate(terms)}
        self._starts = starts
        self._places = places
        self._weights = weights

    @classmethod
    def relevance(cls, documents: Sequence[Sequence[Field]]) -> "Postings":
        """Weights by BM25F: fields are normed by their usual length, then weighed, then summed."""
        usual = _usual_lengths(documents)
        counts: defaultdict[str, dict[int, float]] = defaultdict(dict)
        for place, document in enumerate(documents):
            for (weight, terms), length in zip(document, usual, strict=True):
                each = weight / (1 - LENGTH + LENGTH * len(terms) / length)
                for term in terms:
                    at = counts[term]
                    at[place] = at.get(place, 0.0) + each
        for at in counts.values():
            rarity = _rarity(len(at), len(documents)) * (SATURATION + 1)
            for place, count in at.items():
                at[place] = rarity * count / (SATURATION + count)
        return cls._of(len(documents), counts)

    @classmethod
    def shares(cls, names: Sequence[Sequence[str]]) -> "Postings":
        """Weights by share: all terms of a name make 1, rare ones the more of it."""
        sets = [frozenset(name) for name in names]
        spread: defaultdict[str, int] = defaultdict(int)
        for name in sets:
            for term in name:
                spread[term] += 1
        rarity = {term: _rarity(count, len(sets)) for term, count in spread.items()}
        counts: defaultdict[str, dict[int, float]] = defaultdict(dict)
        for place, name in enumerate(sets):
            whole = sum(rarity[term] for term in name)
            for term in name:
                counts[term][place] = rarity[term] / whole
        return cls._of(len(names), counts)

    @classmethod
    def _of(cls, size: int, counts: Mapping[str, Mapping[int, float]]) -> "Postings":
        terms = sorted(counts)
        starts, places, weights = array("I", [0]), array("I"), array("f")
        for term in terms:
            places.extend(counts[term].keys())
            weights.extend(counts[term].values())
            starts.append(len(places))
        return cls(size, terms, starts, places, weights)

    def rarity(self, term: str) -> float:
        """Return the rarity of a term; an unknown one is the rarest."""
        here = self._slice(term)
        return _rarity(here.stop - here.start, self._size)

    def having(self, term: str) -> Sequence[int]:
        """Return the places that have a term."""
        return self._places[self._slice(term)]

    def _slice(self, term: str) -> slice:
        number = self._numbers.get(term)
        return slice(0, 0) if number is None else slice(*self._starts[number : number + 2])

    def add_up(self, query: Mapping[str, float]) -> dict[int, float]:
        """Return the score of every place that has a term of the query."""
        total: dict[int, float] = {}
        known = total.get
        for term, factor in query.items():
            here = self._slice(term)
            for place, weight in zip(self._places[here], self._weights[here], strict=True):
                total[place] = known(place, 0.0) + factor * weight
        return total

    def stored(self) -> Stored:
        """Return the form for the disk."""
        starts, places = _to_bytes(self._starts), _to_bytes(self._places)
        return Stored(self._terms, starts, places, _to_bytes(self._weights))

    @classmethod
    def restore(cls, stored: Stored, size: int) -> "Postings":
        """Restore postings from disk; raises ValueError if their sizes do not match."""
        starts = _restored(array("I"), stored.starts)
        places = _restored(array("I"), stored.places)
        weights = _restored(array("f"), stored.weights)
        fits = len(starts) == len(stored.terms) + 1 and len(places) == len(weights)
        if not fits or starts[-1] != len(places) or max(places, default=0) >= max(size, 1):
            raise ValueError("the sizes of the postings do not match")
        return cls(size, stored.terms, starts, places, weights)


def _usual_lengths(documents: Sequence[Sequence[Field]]) -> list[float]:
    lengths = [[len(terms) for _, terms in document] for document in documents]
    return [max(1.0, sum(field) / len(field)) for field in zip(*lengths, strict=True)]


def _rarity(count: int, of: int) -> float:
    return log(1 + (of - count + 0.5) / (count + 0.5))


def _to_bytes(numbers: Numbers) -> bytes:
    if sys.byteorder == "big":
        numbers = numbers[:]
        numbers.byteswap()
    return numbers.tobytes()


def _restored(numbers: A, data: bytes) -> A:
    numbers.frombytes(data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
