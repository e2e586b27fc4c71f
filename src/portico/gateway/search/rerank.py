"""A remote model reorders the first hits; on any failure they keep their order."""

import asyncio
import contextlib
import os
import threading
import time
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from portico.core.config.schema import KEYS_OF
from portico.gateway.search.rerank_endpoints import PROVIDERS, RerankEndpoint, names_in, prompt

if TYPE_CHECKING:
    from portico.core.http1.pool import Pool

TIMEOUT_S = 0.8
MAX_ANSWER = 256 * 1024
_FAILURES, _PAUSE_S = 3, 60.0
_MAX_DESCRIPTION, _MAX_PARAMETERS = 200, 12
"""Characters of a description, and parameters of a tool, that are sent."""


class Candidate(NamedTuple):
    """A tool as it is sent to a reranker."""

    name: str
    description: str = ""
    parameters: tuple[str, ...] = ()


class Unusable(Exception):
    """The response has no usable order; the text is free of secrets."""


class Reranker:
    """The client of one endpoint. The key is read when needed, and sent in a header only."""

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
        """`url` is the base of the API, such as `http://localhost:8000/v1`."""
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
        self._paused_until = 0.0
        self._last_report = ""

    def __repr__(self) -> str:
        return f"Reranker({self._model!r})"

    @property
    def state(self) -> str:
        """`on`, `pausing` after failures, or why it is off."""
        if why := self._off_reason():
            return f"off: {why}"
        return "pausing" if self._clock() < self._paused_until else "on"

    def prepare(self) -> None:
        """Do slow imports and load certificates; call it in a thread."""
        with self._lock:
            if self._pool is not None or self._off_reason():
                return
            from portico.core.http1.certificates import tls_context
            from portico.core.http1.errors import Http1Error
            from portico.core.http1.pool import Pool
            from portico.upstream.wires.http_client import is_loopback

            if self._url.startswith("https:"):
                with contextlib.suppress(Http1Error):  # the first request will report it
                    tls_context()
            # Requests to this machine do not go through a proxy.
            self._pool = Pool({}, self._timeout_s, is_direct=is_loopback(self._url))

    async def rerank(
        self, query: str, candidates: Sequence[Candidate], limit: int
    ) -> list[int] | None:
        """Return the places of the candidates in a better order; None on failure."""
        if len(candidates) < 2 or self.state != "on":
            return None
        try:
            async with asyncio.timeout(self._timeout_s):
                if self._pool is None:
                    await asyncio.to_thread(self.prepare)
                names = names_in(self._provider.text(await self._ask(query, candidates, limit)))
            order = _order(names, candidates)
        except TimeoutError:
            self._fail(f"no response within {self._timeout_s * 1e3:.0f} ms")
        except Unusable as error:
            self._fail(str(error))
        except Exception as error:  # noqa: BLE001 - on any error the local order remains
            # Only the class: the text of a library's error may contain headers.
            self._fail(type(error).__name__)
        else:
            self._failed, self._last_report = 0, ""
            return order
        return None

    async def close(self) -> None:
        """Close its connections."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()

    async def _ask(self, query: str, candidates: Sequence[Candidate], limit: int) -> bytes:
        assert self._pool is not None
        text = prompt(query, [one._asdict() for one in candidates], limit)
        headers = {"content-type": "application/json"}
        if key := os.environ.get(self._key_env, "").strip():
            headers |= self._provider.headers(key)
        body = msgspec.json.encode(self._provider.body(self._model, text))
        response = await self._pool.send("POST", self._url, headers, body)
        try:
            await response.head()
            if response.status != 200:
                raise Unusable(f"it returned HTTP {response.status}")
            parts: list[bytes] = []
            size = 0
            async for part in response:
                parts.append(part)
                size += len(part)
                if size > MAX_ANSWER:
                    raise Unusable(f"its response is longer than {MAX_ANSWER} bytes")
        finally:
            response.close()
        return b"".join(parts)

    def _off_reason(self) -> str:
        given = os.environ.get(self._key_env, "").strip()
        if not given and self._provider.needs_key(self._url):
            return f"{self._key_env} is not set"
        if given and self._url.startswith("http:"):
            from portico.upstream.wires.http_client import is_loopback

            if not is_loopback(self._url):
                return "its URL sends the key unencrypted; use https"
        return ""

    def _fail(self, why: str) -> None:
        self._failed += 1
        if self._failed >= _FAILURES:
            self._failed = 0
            self._paused_until = self._clock() + _PAUSE_S
            why = f"{why}; pausing for {_PAUSE_S:.0f} s"
        if why != self._last_report:
            self._last_report = why
            self._report(f"the reranker failed, and search keeps its own order: {why}")


def candidate(name: str, tool: Mapping[str, Any]) -> Candidate:
    """Shorten a definition to one line of visible text."""
    description = tool.get("description")
    schema = tool.get("inputSchema")
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    parameters = [*properties][:_MAX_PARAMETERS] if isinstance(properties, Mapping) else []
    return Candidate(
        _visible(name),
        _visible(description if isinstance(description, str) else ""),
        tuple(_visible(str(one))[:40] for one in parameters),
    )


def _visible(text: str) -> str:
    """Remove invisible characters, which could hide an instruction to the model."""
    seen = [" " if unicodedata.category(c)[0] in "CZ" else c for c in text[: 4 * _MAX_DESCRIPTION]]
    return " ".join("".join(seen).split())[:_MAX_DESCRIPTION]


def _order(names: Sequence[object], candidates: Sequence[Candidate]) -> list[int]:
    """Return the named candidates in their new order, then the others."""
    places: dict[str, int] = {}
    for place, one in enumerate(candidates):
        places.setdefault(one.name, place)
    named = dict.fromkeys(places[one] for one in names if isinstance(one, str) and one in places)
    if not named:
        raise Unusable("its response names none of the tools")
    return [*named, *(place for place in range(len(candidates)) if place not in named)]
