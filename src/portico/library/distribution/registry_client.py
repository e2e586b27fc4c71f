"""Requests to one registry (OCI distribution-spec 1.1), its answers checked and explained."""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import BinaryIO
from urllib.parse import urlencode

import msgspec
from msgspec import Struct

from portico.core.config.publishing import RegistrySettings
from portico.core.http1.body import FileBody
from portico.core.http1.cross_origin import CrossOriginClient
from portico.core.http1.download import read_body
from portico.core.http1.errors import Http1Error, InvalidRequest
from portico.core.http1.response import Http1Response
from portico.core.http1.url import join_url, parse_url
from portico.core.model.wording import printable
from portico.library.distribution.distribution_error import DistributionError, RegistryUnavailable
from portico.library.distribution.docker_config import login_for
from portico.library.distribution.manifest import INDEX_TYPES, MANIFEST_TYPE, MAX_MANIFEST
from portico.library.distribution.registry_auth import RegistryAuth, login_hint
from portico.library.distribution.registry_rule import RegistryRule, base_url, rule_for

STALL_S = 60.0
"""How long a registry may send nothing."""
_SLOWEST = 16 * 1024
"""Bytes in a second, below which an upload is given up."""
_MAX_ERROR = 64 * 1024
_DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
_ACCEPT = {"accept": ", ".join((MANIFEST_TYPE, _DOCKER_MANIFEST, *INDEX_TYPES))}
_BYTES = {"content-type": "application/octet-stream"}
_NOTHING: Mapping[str, str] = MappingProxyType({})
_MAX_SHOWN = 200

Content = Callable[[], bytes | FileBody]
"""Makes the body, which may be sent twice: before and after a challenge."""


class _Fault(Struct):
    code: str = ""
    message: str = ""


class _Faults(Struct):
    errors: tuple[_Fault, ...] = ()


class RegistryClient:
    """One registry, as one user may use it."""

    def __init__(self, client: CrossOriginClient, rule: RegistryRule, auth: RegistryAuth) -> None:
        self._client = client
        self._rule = rule
        self._auth = auth
        self.host = rule.settings.host
        self._base = f"{base_url(rule.settings)}/v2"

    async def manifest(self, name: str, selector: str) -> bytes | None:
        """Return the manifest of a tag or digest, None if there is none; raises
        DistributionError."""
        url = f"{self._base}/{name}/manifests/{selector}"
        response = await self._send("GET", url, _pull(name), _ACCEPT)
        try:
            if response.status == 404:
                return None
            await self._check(response, f"the manifest of {name}")
            return await self._body(response, MAX_MANIFEST, f"the manifest of {name}")
        finally:
            response.close()

    async def blob(self, name: str, digest: str, start: int = 0) -> Http1Response:
        """Begin to download a blob, from a position if the registry can; the caller closes it."""
        part = {"range": f"bytes={start}-"} if start else _NOTHING
        url = f"{self._base}/{name}/blobs/{digest}"
        response = await self._send("GET", url, _pull(name), part)
        if response.status not in (200, 206, 416):
            try:
                await self._check(response, f"a blob of {name}")
                raise DistributionError(
                    f"{self.host} answered HTTP {response.status} for a blob of {name}"
                )
            finally:
                response.close()
        return response

    async def has_blob(self, name: str, digest: str) -> bool:
        """True if the registry has a blob; a push need not send it."""
        url = f"{self._base}/{name}/blobs/{digest}"
        response = await self._send("HEAD", url, _push(name))
        response.close()
        return response.status == 200

    async def begin_upload(self, name: str) -> str:
        """Return the URL of a new upload."""
        url = f"{self._base}/{name}/blobs/uploads/"
        response = await self._send("POST", url, _push(name), content=lambda: b"")
        return await self._location(response, url, f"an upload to {name}", 202)

    async def upload_progress(self, name: str, url: str) -> tuple[int, str] | None:
        """Return how much of an upload has arrived, and its next URL; None if it was deleted."""
        response = await self._send("GET", url, _push(name))
        response.close()
        if response.status != 204:
            return None
        first, _, last = response.headers.get("range", "").partition("-")
        if not last.isdigit() or first.removeprefix("bytes=") != "0":
            return None
        done = int(last) + 1 if int(last) else 0
        return done, join_url(url, response.headers.get("location", "") or url)

    async def upload(self, name: str, url: str, file: BinaryIO, start: int, size: int) -> str:
        """Send a part of a file; return the URL for the next one."""
        about = {**_BYTES, "content-range": f"{start}-{start + size - 1}"}
        response = await self._send(
            "PATCH", url, _push(name), about, lambda: FileBody(file, start, size), size
        )
        return await self._location(response, url, f"an upload to {name}", 202)

    async def finish_upload(self, name: str, url: str, digest: str) -> None:
        """End an upload; the registry compares its digest."""
        whole = f"{url}{'&' if '?' in url else '?'}{urlencode({'digest': digest})}"
        response = await self._send("PUT", whole, _push(name), _BYTES, lambda: b"")
        await self._location(response, whole, f"an upload to {name}", 201)

    async def put_manifest(self, name: str, selector: str, data: bytes) -> None:
        """Store a manifest under a tag or its digest."""
        url = f"{self._base}/{name}/manifests/{selector}"
        about = {"content-type": MANIFEST_TYPE}
        response = await self._send("PUT", url, _push(name), about, lambda: data)
        await self._location(response, url, f"the manifest of {name}", 201)

    async def _location(self, response: Http1Response, url: str, what: str, status: int) -> str:
        try:
            if response.status not in (status, 200, 204):
                await self._check(response, what)
                raise DistributionError(f"{self.host} answered HTTP {response.status} for {what}")
        finally:
            response.close()
        try:
            return join_url(url, response.headers.get("location", "") or url)
        except InvalidRequest as error:
            raise DistributionError(f"{self.host} {error}") from None

    async def _send(
        self,
        method: str,
        url: str,
        scope: str,
        headers: Mapping[str, str] = _NOTHING,
        content: Content | None = None,
        size: int = 0,
    ) -> Http1Response:
        """Send a request, and once more after a challenge; raises DistributionError."""
        response = await self._once(method, url, scope, headers, content, size)
        if response.status != 401 or not self._is_own(url):
            return response
        challenge = response.headers.get("www-authenticate", "")
        response.close()
        if not await self._auth.obtain(challenge, scope):
            raise DistributionError(f"{self.host} requires a login; {login_hint(self.host)}")
        return await self._once(method, url, scope, headers, content, size)

    async def _once(
        self,
        method: str,
        url: str,
        scope: str,
        headers: Mapping[str, str],
        content: Content | None,
        size: int,
    ) -> Http1Response:
        # The registry chose the URL of an upload: at another origin it gets no credentials.
        credentials = self._auth.header(scope) if self._is_own(url) else _NOTHING
        try:
            async with asyncio.timeout(STALL_S + size / _SLOWEST):
                return await self._client.send(
                    method,
                    url,
                    headers,
                    credentials=credentials,
                    content=None if content is None else content(),
                )
        except TimeoutError:
            raise RegistryUnavailable(f"{self.host} did not answer in time") from None
        except InvalidRequest as error:
            raise DistributionError(f"{self.host} {error}") from None
        except Http1Error as error:
            raise RegistryUnavailable(f"{self.host} {error}{self._hint()}") from None

    def _is_own(self, url: str) -> bool:
        try:
            return parse_url(url).origin == self._rule.origin
        except InvalidRequest:
            return False

    def _hint(self) -> str:
        if self._rule.is_direct(self._rule.origin) and not self._rule.settings.insecure:
            url = f"http://{self.host}"
            return (
                f'; for plain HTTP on this machine, set url = "{url}" and insecure = true in a '
                "[registries.NAME] table"
            )
        return ""

    async def _check(self, response: Http1Response, what: str) -> None:
        """Raise DistributionError for a status that is not a success."""
        if response.is_success:
            return
        status = response.status
        said = await self._said(response)
        if status in (401, 403):
            how = "your login may not do this" if self._auth.has_login else login_hint(self.host)
            raise DistributionError(f"{self.host} refused {what}{said}; {how}")
        if status == 404:
            raise DistributionError(f"{self.host} does not have {what}{said}; check the reference")
        if status == 429 or status >= 500:
            raise RegistryUnavailable(f"{self.host} returned HTTP {status} for {what}{said}")
        raise DistributionError(f"{self.host} returned HTTP {status} for {what}{said}")

    async def _said(self, response: Http1Response) -> str:
        try:
            data = await read_body(response, _MAX_ERROR, STALL_S)
            faults = msgspec.json.decode(data, type=_Faults).errors
        except (Http1Error, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return ""
        text = next((one.message or one.code for one in faults), "")
        return f": {printable(text[:_MAX_SHOWN])}" if text else ""

    async def _body(self, response: Http1Response, max_size: int, what: str) -> bytes:
        try:
            return await read_body(response, max_size, STALL_S)
        except Http1Error as error:
            raise DistributionError(f"{what}: {self.host} {error}") from None


def _pull(name: str) -> str:
    return f"repository:{name}:pull"


def _push(name: str) -> str:
    return f"repository:{name}:pull,push"


_CONNECT_S = 20.0


@asynccontextmanager
async def connected(settings: RegistrySettings) -> AsyncGenerator[RegistryClient, None]:
    """Yield a client of a registry, closed in the end; raises DistributionError."""
    try:
        rule = await rule_for(settings)
    except InvalidRequest as error:
        raise DistributionError(f"{settings.host} {error}") from None
    login = await login_for(settings.host, os.environ)
    client = CrossOriginClient(rule, _CONNECT_S)
    try:
        yield RegistryClient(client, rule, RegistryAuth(client, rule, login))
    finally:
        await client.close()
