"""Downloads a description or a bundle: over https, and bounded."""

import asyncio

from portico.commands.published.settings import PublishedError
from portico.core.http1.cross_origin import CrossOriginClient
from portico.core.http1.dial import permit_all
from portico.core.http1.download import read_body
from portico.core.http1.errors import Http1Error
from portico.core.http1.url import Origin
from portico.upstream.auth.address_rule import Permit
from portico.upstream.wires.http_client import is_loopback

_TIMEOUT_S = 300.0
_CONNECT_S = 20.0


class _DownloadRule:
    """Plain http is only for this machine, since others could change a command on its way."""

    def __init__(self) -> None:
        self._left = False  # a redirect that left this machine does not come back

    def refusal(self, origin: Origin) -> str:
        is_local = self.is_direct(origin)
        self._left = self._left or not is_local
        if origin.scheme == "https" or (is_local and not self._left):
            return ""
        return f"others could change what {origin.shown} sends on its way; use https"

    def is_direct(self, origin: Origin) -> bool:
        return is_loopback(f"{origin.scheme}://{origin.authority}")

    def permit(self, origin: Origin) -> Permit:
        return permit_all


async def download(url: str, max_size: int) -> bytes:
    """Return the body at a URL, after redirects; raises PublishedError."""
    client = CrossOriginClient(_DownloadRule(), _CONNECT_S)
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            response = await client.send("GET", url)
            if response.status != 200:
                raise PublishedError(f"{url}: it returned HTTP {response.status}")
            return await read_body(response, max_size, _TIMEOUT_S)
    except TimeoutError:
        raise PublishedError(f"{url}: no complete response within {_TIMEOUT_S:.0f} s") from None
    except Http1Error as error:
        raise PublishedError(f"{url}: {error}") from None
    finally:
        await client.close()
