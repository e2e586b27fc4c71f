"""Downloads a description or a bundle: over https, and bounded."""

import asyncio
from urllib.parse import urljoin

from portico.http1.errors import Http1Error
from portico.http1.pool import Pool
from portico.published.settings import PublishedError
from portico.wires.http_client import is_loopback

_TIMEOUT_S = 300.0
_CONNECT_S = 20.0
_MAX_REDIRECTS = 5
_REDIRECTS = (301, 302, 303, 307, 308)


async def download(url: str, max_size: int) -> bytes:
    """Return the body at a URL, after redirects; raises PublishedError.

    Plain http is only for this machine, since others could change a command on its way.
    """
    is_local = is_loopback(url)
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            for _ in range(_MAX_REDIRECTS + 1):
                is_local = is_local and is_loopback(url)
                if not url.startswith("https://") and not is_local:
                    raise PublishedError(f"{url}: others could change it on its way; use https")
                found = await _get(url, max_size, is_direct=is_local)
                if isinstance(found, bytes):
                    return found
                url = urljoin(url, found)
    except TimeoutError:
        raise PublishedError(f"{url}: no complete response within {_TIMEOUT_S:.0f} s") from None
    except Http1Error as error:
        raise PublishedError(f"{url}: {error}") from None
    raise PublishedError(f"{url}: redirected more than {_MAX_REDIRECTS} times")


async def _get(url: str, max_size: int, *, is_direct: bool) -> bytes | str:
    """Return the body, or where the server redirects to."""
    pool = Pool({}, _CONNECT_S, is_direct=is_direct)
    try:
        response = await pool.send("GET", url, {})
        await response.head()
        if response.status in _REDIRECTS and response.headers.get("location"):
            return response.headers["location"]
        if response.status != 200:
            raise PublishedError(f"{url}: it returned HTTP {response.status}")
        parts: list[bytes] = []
        size = 0
        async for part in response:
            parts.append(part)
            size += len(part)
            if size > max_size:
                raise PublishedError(f"{url}: larger than {max_size:,} bytes, the limit")
        return b"".join(parts)
    finally:
        await pool.close()
