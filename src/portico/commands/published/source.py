"""Reads where a published server is described: a file or a URL, a server.json or a bundle.

Downloads are over https, and bounded.
"""

import asyncio
import hashlib
import os
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import msgspec
from msgspec import Struct

from portico.commands.published.bundle import MAX_FILE, open_bundle
from portico.commands.published.manifest import read_manifest
from portico.commands.published.server_json import BUNDLE, ways_in
from portico.commands.published.settings import PublishedError, Setting, Values
from portico.core.config.paths import BUNDLES, state_folder
from portico.core.http1.cross_origin import CrossOriginClient
from portico.core.http1.dial import permit_all
from portico.core.http1.download import read_body
from portico.core.http1.errors import Http1Error
from portico.core.http1.url import Origin
from portico.upstream.auth.address_rule import Permit
from portico.upstream.wires.http_client import is_loopback

_TIMEOUT_S = 300.0
_CONNECT_S = 20.0
_MAX_DESCRIPTION = 1024 * 1024
_ZIP = b"PK\x03\x04"
_URLS = ("http://", "https://")


class PublishedServer(Struct):
    """A server that can be added once its settings have values."""

    title: str
    settings: tuple[Setting, ...]
    entry: Callable[[Values], dict[str, Any]]
    unpack: Callable[[], None]
    """Called after the yes."""
    unpacked: str = ""
    """The size of a bundle."""
    others: str = ""
    """The kinds of packages, if there are several."""


def planned_server(name: str, source: str, use: str | None, stack: ExitStack) -> PublishedServer:
    """Read a source, with the kind of package to use of several; raises PublishedError.

    The stack closes the files that the plan needs.
    """
    path = _downloaded(source, stack) if source.startswith(_URLS) else source
    try:
        with open(path, "rb") as file:
            head = file.read(len(_ZIP))
            is_bundle = head == _ZIP or source.endswith((".mcpb", ".dxt"))
            raw = b"" if is_bundle else head + file.read(_MAX_DESCRIPTION + 1)
    except OSError as error:
        raise PublishedError(f"cannot be read: {error.strerror}") from None
    if is_bundle:
        return _bundle(name, path, stack)
    if len(raw) > _MAX_DESCRIPTION:
        raise PublishedError("larger than 1 MB; give a server.json or an .mcpb bundle")
    return _registry(name, raw, use, stack)


def _registry(name: str, raw: bytes, use: str | None, stack: ExitStack) -> PublishedServer:
    try:
        data = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PublishedError(f"not valid JSON: {error}") from None
    ways = ways_in(data)
    kinds = ", ".join(dict.fromkeys(way.kind for way in ways))
    way = next((way for way in ways if use in (None, way.kind)), None)
    if way is None:
        raise PublishedError(f"it is not available as {use}; use one of {kinds}")
    others = kinds if len(ways) > 1 and use is None else ""
    if way.kind != BUNDLE:
        return PublishedServer(way.title, way.settings, way.entry, lambda: None, others=others)
    path = _downloaded(way.bundle_url, stack)
    with open(path, "rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != way.sha256:
            raise PublishedError(
                f"{way.bundle_url} is not the file that it names (SHA-256 differs)"
            )
    return _bundle(name, path, stack)


def _bundle(name: str, path: str, stack: ExitStack) -> PublishedServer:
    bundle = stack.enter_context(open_bundle(path))
    manifest = read_manifest(bundle.manifest())
    folder = os.path.join(state_folder(), BUNDLES, f"{name}-{os.urandom(4).hex()}")
    return PublishedServer(
        manifest.title,
        manifest.settings,
        lambda given: manifest.entry(folder, given),
        lambda: bundle.unpack(folder),
        f"{bundle.size:,} bytes",
    )


def _downloaded(url: str, stack: ExitStack) -> str:
    """Download into a file that is removed at the end."""
    path = os.path.join(stack.enter_context(tempfile.TemporaryDirectory()), "download")
    data = asyncio.run(download(url, MAX_FILE))
    with open(path, "wb") as file:
        file.write(data)
    return path


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
