"""A model elsewhere puts the first hits in order; whatever goes wrong, they keep their own."""

import asyncio
import contextlib
import os
import threading
import time
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from portico.config.schema import KEYS_OF
from portico.search.rerank_endpoints import PROVIDERS, RerankEndpoint, names_in, question

if TYPE_CHECKING:
    from portico.http1.pool import Pool

TIMEOUT_S = 0.8
MAX_ANSWER = 256 * 1024
_FAILURES, _PAUSE_S = 3, 60.0
_LINE, _PARAMETERS = 200, 12
"""Characters of a description, and parameters of a tool, that are shown."""


class Candidate(NamedTuple):
    """A tool as a reranker sees it."""

    name: str
    description: str = ""
    parameters: tuple[str, ...] = ()


class Unusable(Exception):
    """An answer that says nothing about the order; the words hold no secret."""


class Reranker:
    """One endpoint. The key is read when it is needed, and sent in a header only."""

    def __init__(
        self,
        provider: str,
        model: str,
        *,
        url: str = "",
        key_env: str = "",
        timeout_s: float = TIMEOUT_S,
        report: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`url` is where the API begins, such as `http://localhost:8000/v1`."""
        self._provider: RerankEndpoint = PROVIDERS[provider]
        self._url = self._provider.address(url, model)
        self._model = model
        self._key_env = key_env or KEYS_OF[provider]
        self._timeout_s = timeout_s
        self._report = report
        self._clock = clock
        self._lock = threading.Lock()
        self._pool: Pool | None = None
        self._failed = 0
        self._rests_until = 0.0
        self._said = ""

    def __repr__(self) -> str:
        return f"Reranker({self._model!r})"

    @property
    def state(self) -> str:
        """`on`, `pausing` after failures, or why it is off."""
        if why := self._off():
            return f"off: {why}"
        return "pausing" if self._clock() < self._rests_until else "on"

    def prepare(self) -> None:
        """Import and open what is slow to; call it in a thread."""
        with self._lock:
            if self._pool is not None or self._off():
                return
            from portico.http1.certificates import tls_context
            from portico.http1.errors import Http1Error
            from portico.http1.pool import Pool
            from portico.wires.http_client import is_loopback

            if self._url.startswith("https:"):
                with contextlib.suppress(Http1Error):  # it will be told when it is asked
                    tls_context()
            # What is meant for this machine does not go through a proxy.
            self._pool = Pool({}, self._timeout_s, is_direct=is_loopback(self._url))

    async def rerank(
        self, query: str, candidates: Sequence[Candidate], limit: int
    ) -> list[int] | None:
        """The places of the candidates in a better order; None leaves them as they are."""
        if len(candidates) < 2 or self.state != "on":
            return None
        try:
            async with asyncio.timeout(self._timeout_s):
                if self._pool is None:
                    await asyncio.to_thread(self.prepare)
                names = names_in(self._provider.text(await self._ask(query, candidates, limit)))
            order = _order(names, candidates)
        except TimeoutError:
            self._fail(f"it took longer than {self._timeout_s * 1e3:.0f} ms")
        except Unusable as error:
            self._fail(str(error))
        except Exception as error:  # noqa: BLE001 - whatever it is, the local order stands
            # Only its class: what libraries say of a request may hold its headers.
            self._fail(type(error).__name__)
        else:
            self._failed, self._said = 0, ""
            return order
        return None

    async def close(self) -> None:
        """Close its connections."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()

    async def _ask(self, query: str, candidates: Sequence[Candidate], limit: int) -> bytes:
        assert self._pool is not None
        text = question(query, [one._asdict() for one in candidates], limit)
        headers = {"content-type": "application/json"}
        if key := os.environ.get(self._key_env, "").strip():
            headers |= self._provider.headers(key)
        body = msgspec.json.encode(self._provider.body(self._model, text))
        response = await self._pool.send("POST", self._url, headers, body)
        try:
            await response.head()
            if response.status != 200:
                raise Unusable(f"it answered HTTP {response.status}")
            parts: list[bytes] = []
            size = 0
            async for part in response:
                parts.append(part)
                size += len(part)
                if size > MAX_ANSWER:
                    raise Unusable(f"its answer is longer than {MAX_ANSWER} bytes")
        finally:
            response.close()
        return b"".join(parts)

    def _off(self) -> str:
        given = os.environ.get(self._key_env, "").strip()
        if not given and self._provider.needs_key(self._url):
            return f"{self._key_env} is not set"
        if given and self._url.startswith("http:"):
            from portico.wires.http_client import is_loopback

            if not is_loopback(self._url):
                return "its URL would send the key in the open; use https"
        return ""

    def _fail(self, why: str) -> None:
        self._failed += 1
        if self._failed >= _FAILURES:
            self._failed = 0
            self._rests_until = self._clock() + _PAUSE_S
            why = f"{why}; it has a pause of {_PAUSE_S:.0f} s"
        if why != self._said:
            self._said = why
            self._report(f"search keeps its own order, the reranker did not help: {why}")


def candidate(name: str, tool: Mapping[str, Any]) -> Candidate:
    """A definition as one short line of visible text."""
    description = tool.get("description")
    schema = tool.get("inputSchema")
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    parameters = [*properties][:_PARAMETERS] if isinstance(properties, Mapping) else []
    return Candidate(
        _visible(name),
        _visible(description if isinstance(description, str) else ""),
        tuple(_visible(str(one))[:40] for one in parameters),
    )


def _visible(text: str) -> str:
    """One line without characters that nobody sees, which could hide an order to the model."""
    seen = [" " if unicodedata.category(c)[0] in "CZ" else c for c in text[: 4 * _LINE]]
    return " ".join("".join(seen).split())[:_LINE]


def _order(names: Sequence[object], candidates: Sequence[Candidate]) -> list[int]:
    """Those that were named, as they were named; then the others, as they were."""
    places: dict[str, int] = {}
    for place, one in enumerate(candidates):
        places.setdefault(one.name, place)
    named = dict.fromkeys(places[one] for one in names if isinstance(one, str) and one in places)
    if not named:
        raise Unusable("its answer names no tool of ours")
    return [*named, *(place for place in range(len(candidates)) if place not in named)]
