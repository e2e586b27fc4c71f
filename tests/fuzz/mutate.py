"""Makes broken messages out of good ones: by structure, and byte by byte."""

import copy
import json
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

from tests.fuzz.seeds import AWKWARD, FRAGMENTS, bodies, messages

_LONGEST = 100_000


class Mutator:
    """An endless source of inputs; the same seed makes the same ones."""

    def __init__(self, seed: int, valid: Sequence[Any] = ()) -> None:
        """`valid` are the messages to start from, instead of those of MCP."""
        self._random = Random(seed)
        self._messages = list(valid) or messages()
        self._bodies = bodies(self._messages)

    def __iter__(self) -> Iterator[bytes]:
        while True:
            yield self.next()

    def next(self) -> bytes:
        """One more input."""
        if self._random.random() < 0.6:
            body = self._reshaped()
        else:
            body = self._random.choice(self._bodies)
        if self._random.random() < 0.5:
            for _ in range(self._random.choice((1, 1, 2, 5))):
                body = self._random.choice(self._byte_changes)(self, body)
        return body[:_LONGEST]

    # By structure: still JSON, but not what it should be.

    def _reshaped(self) -> bytes:
        message = copy.deepcopy(self._random.choice(self._messages))
        for _ in range(self._random.choice((0, 1, 1, 2, 4))):
            message = self._reshape(message)
        body = json.dumps(message, ensure_ascii=self._random.random() < 0.5)
        return body.encode(errors="surrogatepass")

    def _reshape(self, message: Any) -> Any:
        random = self._random
        places = list(_places(message))
        if not places or random.random() < 0.02:
            return copy.deepcopy(random.choice(AWKWARD))
        parent, key = random.choice(places)
        match random.randrange(7):
            case 0:
                del parent[key]
            case 1:
                parent[key] = copy.deepcopy(random.choice(AWKWARD))
            case 2:
                parent[key] = copy.deepcopy(random.choice(self._messages))
            case 3:
                _put(parent, random.choice(("id", "_meta", "é", "", "params")), parent[key])
            case 4:
                for _ in range(random.choice((1, 10, 150))):
                    parent[key] = random.choice(([parent[key]], {"a": parent[key]}))
            case 5:
                other, there = random.choice(places)
                here, away = copy.deepcopy((parent[key], other[there]))
                other[there] = here
                parent[key] = away
            case 6 if isinstance(message, dict):
                return [message] * random.choice((1, 1, 2, 2, 120))
        return message

    # Byte by byte: most likely no JSON at all.

    def _flip(self, body: bytes) -> bytes:
        at = self._at(body)
        return body[:at] + bytes([self._random.randrange(256)]) + body[at + 1 :]

    def _truncate(self, body: bytes) -> bytes:
        return body[: self._at(body)]

    def _behead(self, body: bytes) -> bytes:
        return body[self._at(body) :]

    def _repeat(self, body: bytes) -> bytes:
        a, b = sorted((self._at(body), self._at(body)))
        return body[:b] + body[a:b] * self._random.choice((1, 2, 50)) + body[b:]

    def _insert(self, body: bytes) -> bytes:
        at = self._at(body)
        return body[:at] + self._random.choice(FRAGMENTS) + body[at:]

    def _noise(self, body: bytes) -> bytes:
        at = self._at(body)
        return body[:at] + self._random.randbytes(self._random.choice((1, 4, 64))) + body[at:]

    def _splice(self, body: bytes) -> bytes:
        other = self._random.choice(self._bodies)
        return body[: self._at(body)] + other[self._at(other) :]

    def _at(self, body: bytes) -> int:
        return self._random.randrange(len(body) + 1)

    _byte_changes: tuple[Callable[["Mutator", bytes], bytes], ...] = (
        *(_flip, _truncate, _behead, _repeat, _insert, _noise, _splice),
    )


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container in a message with each of its keys."""
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from _places(value[key])


def _put(parent: Any, key: str, value: Any) -> None:
    if isinstance(parent, dict):
        parent[key] = copy.deepcopy(value)
    else:
        parent.append(copy.deepcopy(value))
