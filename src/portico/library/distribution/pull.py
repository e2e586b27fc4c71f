"""Pulls a component: its manifest, its signatures, then its file; and finds it again offline."""

import base64
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct

from portico.core.config.publishing import Publishing
from portico.core.http1.download import read_body
from portico.core.http1.errors import Http1Error
from portico.library.distribution.blob_cache import BlobCache
from portico.library.distribution.blob_download import BlobDownload, Progress
from portico.library.distribution.distribution_error import (
    DistributionError,
    RegistryUnavailable,
    Untrusted,
)
from portico.library.distribution.lock_file import LockedComponent, LockFile
from portico.library.distribution.manifest import (
    FUNCTIONS,
    MAX_MANIFEST,
    TITLE,
    Descriptor,
    Kind,
    Manifest,
    check_digest,
    component_layer,
    digest_of,
    file_name,
    read_manifest,
)
from portico.library.distribution.reference import OciReference
from portico.library.distribution.registry_client import RegistryClient, connected
from portico.library.distribution.signature import (
    MAX_PAYLOAD,
    PAYLOAD_TYPE,
    SignedBy,
    signature_tag,
)
from portico.library.distribution.trust import Signatures, Trust

_SIGNATURES = "signatures.json"


class Pulled(Struct, frozen=True, kw_only=True):
    """A component that may be used."""

    reference: OciReference
    """With its digest."""
    path: str
    """Its file in the cache."""
    kind: Kind
    size: int
    annotations: Mapping[str, str]
    signed_by: SignedBy | None
    """None if it is not signed, and allowed."""
    is_offline: bool = False
    """The registry could not be reached: the tag may have moved since."""


class _KeptSignature(Struct):
    layer: Descriptor
    payload: str


class Puller:
    """Pulls components for one config."""

    def __init__(
        self, publishing: Publishing, lock: LockFile, cache: BlobCache, progress: Progress
    ) -> None:
        self._publishing = publishing
        self._lock = lock
        self._cache = cache
        self._progress = progress
        self._trust = Trust(publishing.trust)

    def find(self, reference: OciReference) -> Pulled:
        """Return a component that was pulled, without the network; raises DistributionError."""
        digest = reference.digest
        if not digest:
            locked = self._lock.find(reference.locked_as)
            if locked is None:
                raise DistributionError(
                    f"{reference}: not pulled yet; run `portico pull {reference}`"
                )
            digest = locked.digest
        data = self._cache.read(digest, MAX_MANIFEST)
        if data is None:
            raise _not_cached(reference)
        manifest = read_manifest(data, str(reference))
        signed_by = self._trust.check(
            reference,
            digest,
            self._kept_signatures(digest),
            is_locked=self._lock.has_digest(digest),
        )
        layer, _ = component_layer(manifest, str(reference))
        if not self._cache.find(layer.digest):
            raise _not_cached(reference)
        return self._pulled(reference.with_digest(digest), manifest, signed_by)

    async def pull(self, reference: OciReference, *, update: bool = False) -> Pulled:
        """Pull a component and lock its tag; raises DistributionError.

        A tag that moved is refused without `update`, and one that moved back always.
        """
        locked = self._lock.find(reference.locked_as)
        try:
            return await self._pull(reference, locked, update)
        except RegistryUnavailable as error:
            if locked is None and not reference.digest:
                raise
            try:
                found = self.find(reference)
            except DistributionError:
                raise error from None
            return msgspec.structs.replace(found, is_offline=True)

    async def _pull(
        self, reference: OciReference, locked: LockedComponent | None, update: bool
    ) -> Pulled:
        async with connected(self._publishing.registry(reference.host)) as client:
            data = await self._manifest(client, reference)
            digest = digest_of(data)
            _check_moved(reference, digest, locked, update)
            manifest = read_manifest(data, str(reference))
            layer, _ = component_layer(manifest, str(reference))
            found = await self._signatures(client, reference, digest)
            signed_by = self._trust.check(
                reference, digest, found, is_locked=self._lock.has_digest(digest)
            )
            # From here on it is trusted: nothing before was more than a manifest.
            await BlobDownload(client, self._cache, reference.name, layer, self._progress).run()
        self._keep(digest, data, found)
        pulled = self._pulled(reference.with_digest(digest), manifest, signed_by)
        key = "" if signed_by is None else signed_by.key
        self._lock.lock(reference.locked_as, digest, key, locked)
        self._cache.prune()
        return pulled

    async def _manifest(self, client: RegistryClient, reference: OciReference) -> bytes:
        if reference.digest:
            data = self._cache.read(reference.digest, MAX_MANIFEST)
            if data is not None:
                return data
        data = await client.manifest(reference.name, reference.selector)
        if data is None:
            raise DistributionError(
                f"{reference}: {client.host} does not have it; check its name and tag"
            )
        if reference.digest:
            check_digest(data, reference.digest, f"the manifest of {reference}")
        return data

    async def _signatures(
        self, client: RegistryClient, reference: OciReference, digest: str
    ) -> Signatures:
        """Return the signatures of a digest; raises DistributionError if one cannot be read."""
        name, what = reference.name, f"the signature of {reference}"
        data = await client.manifest(name, signature_tag(digest))
        if data is None:
            return ()
        found: list[tuple[Descriptor, bytes]] = []
        for layer in read_manifest(data, what).layers:
            if layer.media_type != PAYLOAD_TYPE:
                continue
            if layer.size > MAX_PAYLOAD:
                raise Untrusted(f"{what}: its payload is larger than {MAX_PAYLOAD:,} bytes")
            payload = await _small_blob(client, name, layer)
            check_digest(payload, layer.digest, f"the payload of {what}")
            found.append((layer, payload))
        return found

    def _keep(self, digest: str, manifest: bytes, found: Signatures) -> None:
        self._cache.add(digest, manifest)
        kept = [_KeptSignature(one, base64.b64encode(data).decode()) for one, data in found]
        self._cache.save_note(digest, _SIGNATURES, msgspec.json.encode(kept) if kept else None)

    def _kept_signatures(self, digest: str) -> Signatures:
        data = self._cache.note(digest, _SIGNATURES)
        if data is None:
            return ()
        try:
            kept = msgspec.json.decode(data, type=Sequence[_KeptSignature])
            return [(one.layer, base64.b64decode(one.payload)) for one in kept]
        except (msgspec.MsgspecError, ValueError):
            return ()

    def _pulled(
        self, reference: OciReference, manifest: Manifest, signed_by: SignedBy | None
    ) -> Pulled:
        """Return a component whose layer is in the cache, and was compared with its digest."""
        layer, kind = component_layer(manifest, str(reference))
        title = layer.annotations.get(TITLE, "") or manifest.annotations.get(TITLE, "")
        name = file_name(title, reference.name, kind)
        functions = manifest.annotations.get(FUNCTIONS, "") if kind == "component" else ""
        path = self._cache.named(layer.digest, name, reference.digest if functions else "")
        if functions:
            self._cache.put_beside(path, ".toml", functions.encode())
        return Pulled(
            reference=reference,
            path=path,
            kind=kind,
            size=layer.size,
            annotations=manifest.annotations,
            signed_by=signed_by,
        )


def _check_moved(
    reference: OciReference, digest: str, locked: LockedComponent | None, update: bool
) -> None:
    """Raise Untrusted for a tag that moved, unless that is accepted."""
    if locked is None or locked.digest == digest:
        return
    if not update:
        raise Untrusted(
            f"{reference}: refused: it was {locked.digest} and is {digest} now; run "
            f"`portico pull --update {reference}` if you expect that"
        )
    if digest in locked.former and not reference.digest:
        raise Untrusted(
            f"{reference}: refused: the registry serves {digest} again, which was replaced by "
            f"{locked.digest}; to go back, pull {reference}@{digest} with --update"
        )


async def _small_blob(client: RegistryClient, name: str, layer: Descriptor) -> bytes:
    response = await client.blob(name, layer.digest)
    try:
        return await read_body(response, layer.size, 60.0)
    except Http1Error as error:
        raise RegistryUnavailable(f"{client.host} {error}") from None
    finally:
        response.close()


def _not_cached(reference: OciReference) -> DistributionError:
    return DistributionError(
        f"{reference}: not in the cache any more; run `portico pull {reference}`"
    )
