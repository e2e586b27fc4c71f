"""Pushes a component: its file, its config, its manifest, its signature; the tag comes last."""

import hashlib
import io
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, BinaryIO

import msgspec
from msgspec import Struct

from portico.core.config.publishing import Publishing
from portico.library.distribution.blob_cache import BlobCache
from portico.library.distribution.blob_download import NoProgress, Progress
from portico.library.distribution.blob_upload import CHUNK, BlobUpload, size_of
from portico.library.distribution.distribution_error import DistributionError
from portico.library.distribution.manifest import (
    HEAD_SIZE,
    MANIFEST_TYPE,
    MAX_COMPONENT,
    TITLE,
    Descriptor,
    Manifest,
    digest_of,
    layer_type,
    new_config,
    new_manifest,
    read_manifest,
    written_manifest,
)
from portico.library.distribution.reference import OciReference
from portico.library.distribution.registry_client import RegistryClient, connected
from portico.library.distribution.signature import (
    ANNOTATION,
    MAX_SIGNATURES,
    PAYLOAD_TYPE,
    payload_for,
    signature_tag,
    signed,
)

_EPOCH = "1970-01-01T00:00:00Z"
"""Fixed, so that the same file has the same digest whenever it is pushed."""
_IMAGE_CONFIG = "application/vnd.oci.image.config.v1+json"
_PIECE = 1024 * 1024


class Pushed(Struct, frozen=True):
    """The result of a push."""

    reference: OciReference
    """With its digest."""
    size: int
    was_sent: bool
    """False if the registry had the file already."""


class Pusher:
    """Pushes components for one config."""

    def __init__(
        self, publishing: Publishing, cache: BlobCache, progress: Progress, chunk: int = CHUNK
    ) -> None:
        self._publishing = publishing
        self._cache = cache
        self._progress = progress
        self._chunk = chunk

    async def push(
        self,
        path: str,
        reference: OciReference,
        annotations: Mapping[str, str],
        key: Any = None,
        about: Mapping[str, Any] | None = None,
    ) -> Pushed:
        """Push a file, signed if there is a private key; raises DistributionError."""
        if reference.digest or not reference.tag:
            raise DistributionError(f"{reference}: push needs a tag, not a digest")
        with _open(path) as file:
            layer = _layer(file, path)
            config = new_config(layer.digest, _EPOCH, about or {})
            data = new_manifest(config, layer, annotations)
            digest = digest_of(data)
            async with connected(self._publishing.registry(reference.host)) as client:
                upload = BlobUpload(
                    client, self._cache, reference.name, self._progress, self._chunk
                )
                was_sent = await upload.run(file, layer.size, layer.digest)
                await self._small(client, reference.name, config)
                # By digest first: the tag never points to a component without its signature.
                await client.put_manifest(reference.name, digest, data)
                if key is not None:
                    await self._sign(client, reference, digest, key)
                await client.put_manifest(reference.name, reference.tag, data)
        return Pushed(reference.with_digest(digest), layer.size, was_sent)

    async def _sign(
        self, client: RegistryClient, reference: OciReference, digest: str, key: Any
    ) -> None:
        """Add a signature to those that the digest has, in the place where cosign looks."""
        at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        payload = payload_for(reference.repository, digest, at)
        await self._small(client, reference.name, payload)
        layer = Descriptor(
            PAYLOAD_TYPE, digest_of(payload), len(payload), {ANNOTATION: signed(key, payload)}
        )
        tag = signature_tag(digest)
        found = await client.manifest(reference.name, tag)
        layers: tuple[Descriptor, ...] = (layer,)
        if found is not None:
            before = read_manifest(found, f"the signature of {reference}").layers
            layers = (*before[-(MAX_SIGNATURES - 1) :], layer)
        config = _signature_config(layers)
        await self._small(client, reference.name, config)
        about = Descriptor(_IMAGE_CONFIG, digest_of(config), len(config))
        manifest = Manifest(about, layers, 2, MANIFEST_TYPE)
        await client.put_manifest(reference.name, tag, written_manifest(manifest))

    async def _small(self, client: RegistryClient, name: str, data: bytes) -> None:
        upload = BlobUpload(client, self._cache, name, NoProgress(), self._chunk)
        await upload.run(io.BytesIO(data), len(data), digest_of(data))


def _signature_config(layers: tuple[Descriptor, ...]) -> bytes:
    """Return the config of a signature: that of an image with these layers."""
    return msgspec.json.encode(
        {
            "architecture": "",
            "created": "0001-01-01T00:00:00Z",
            "history": [{"created": "0001-01-01T00:00:00Z"} for _ in layers],
            "os": "",
            "rootfs": {"type": "layers", "diff_ids": [layer.digest for layer in layers]},
            "config": {},
        }
    )


def _layer(file: BinaryIO, path: str) -> Descriptor:
    """Return the descriptor of a file; raises DistributionError if it is not a component."""
    head = file.read(HEAD_SIZE)
    kind = layer_type(head)
    if not kind:
        what = "neither a .wasm component nor a bundle, so others could not run it"
        raise DistributionError(f"{path}: {what}; run `portico compose` on it first")
    size = size_of(file)
    if size > MAX_COMPONENT:
        raise DistributionError(f"{path}: larger than {MAX_COMPONENT:,} bytes, the limit")
    digest = hashlib.sha256(head)
    while piece := file.read(_PIECE):
        digest.update(piece)
    title = {TITLE: os.path.basename(path)}
    return Descriptor(kind, f"sha256:{digest.hexdigest()}", size, title)


def _open(path: str) -> BinaryIO:
    try:
        # A pipe would make us wait for its writer.
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        file = os.fdopen(handle, "rb")
    except OSError as error:
        raise DistributionError(f"{path}: cannot be read: {error.strerror}") from None
    if not os.path.isfile(path):
        file.close()
        raise DistributionError(f"{path}: not a file")
    return file
