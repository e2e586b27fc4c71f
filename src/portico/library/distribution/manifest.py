"""Manifests of components: an image manifest of OCI in the layout of the CNCF for wasm.

A manifest comes from a registry that may lie: it is bounded before it is parsed, compared with its
digest before it is read, and has one layer.
"""

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec import Struct, field

from portico.library.distribution.distribution_error import DistributionError, Untrusted
from portico.library.distribution.reference import checked_digest

MAX_MANIFEST = 4 * 1024 * 1024
"""Registries accept no larger ones."""
MAX_COMPONENT = 512 * 1024 * 1024
MAX_LAYERS = 32
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
INDEX_TYPES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
CONFIG_TYPE = "application/vnd.wasm.config.v0+json"
WASM_TYPE = "application/wasm"
BUNDLE_TYPE = "application/vnd.portico.bundle.v1"
LAYER_TYPES = (WASM_TYPE, BUNDLE_TYPE)
DESCRIPTION = "org.opencontainers.image.description"
FUNCTIONS = "vnd.portico.functions"
"""The text of the file that describes a component's functions."""
TITLE = "org.opencontainers.image.title"

Kind = Literal["component", "bundle"]
_KIND_OF: dict[str, Kind] = {WASM_TYPE: "component", BUNDLE_TYPE: "bundle"}
_ENDING: dict[Kind, str] = {"component": ".wasm", "bundle": ".portico"}
_WASM = b"\0asm"
_ZIP, _ZIP_NAME_AT, _BUNDLE_NAME = b"PK\3\4", 30, b"portico.json"
HEAD_SIZE = 64
"""The bytes of a file that determine its type."""
_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


class Descriptor(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A blob that a manifest refers to."""

    media_type: str
    digest: str
    size: int
    annotations: Mapping[str, str] = field(default_factory=dict)


class Manifest(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A config and its layers."""

    config: Descriptor
    layers: tuple[Descriptor, ...]
    schema_version: int = 2
    media_type: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)


_decode = msgspec.json.Decoder(Manifest).decode


def digest_of(data: bytes) -> str:
    """Return the digest of some bytes."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def check_digest(data: bytes, digest: str, what: str) -> None:
    """Raise Untrusted unless the data has this digest."""
    found = digest_of(data)
    if found != digest:
        raise Untrusted(f"{what}: its digest is {found}, not {digest}; nothing of it was used")


def read_manifest(data: bytes, what: str) -> Manifest:
    """Parse a manifest and check every number in it; raises DistributionError."""
    if len(data) > MAX_MANIFEST:
        raise DistributionError(f"{what}: its manifest is larger than {MAX_MANIFEST:,} bytes")
    try:
        found = _decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DistributionError(
            f"{what}: its manifest cannot be read: {error}; pull a component"
        ) from None
    if found.schema_version != 2 or found.media_type in INDEX_TYPES:
        raise DistributionError(f"{what}: not the manifest of one component")
    if len(found.layers) > MAX_LAYERS:
        raise DistributionError(
            f"{what}: its manifest has {len(found.layers):,} layers; a component has one"
        )
    for one in (found.config, *found.layers):
        _check_descriptor(one, what)
    return found


def component_layer(manifest: Manifest, what: str) -> tuple[Descriptor, Kind]:
    """Return the one layer that is the component or the bundle; raises DistributionError."""
    layers = [one for one in manifest.layers if one.media_type in LAYER_TYPES]
    if len(layers) != 1 or len(manifest.layers) != 1:
        config = manifest.config.media_type[:80]
        raise DistributionError(
            f"{what}: not a component: its config is {config!r} with {len(manifest.layers)} "
            f"layers; a component has one layer of {' or '.join(LAYER_TYPES)}"
        )
    layer = layers[0]
    if layer.size > MAX_COMPONENT:
        raise DistributionError(f"{what}: larger than {MAX_COMPONENT:,} bytes, the limit")
    return layer, _KIND_OF[layer.media_type]


def layer_type(head: bytes) -> str:
    """Return the media type of a file by its first bytes; empty if it cannot be pushed."""
    if head.startswith(_WASM):
        return WASM_TYPE
    is_bundle = head.startswith(_ZIP) and head[_ZIP_NAME_AT:].startswith(_BUNDLE_NAME)
    return BUNDLE_TYPE if is_bundle else ""


def file_name(title: str, name: str, kind: Kind) -> str:
    """Return a safe name for the file of a component: its title, else the last part of its name."""
    ending = _ENDING[kind]
    for found in (title, name.rpartition("/")[2]):
        if _FILE_NAME.fullmatch(found):
            return found if found.endswith(ending) else f"{found[:90]}{ending}"
    return f"{kind}{ending}"


def new_config(layer_digest: str, created: str, component: Mapping[str, Any]) -> bytes:
    """Return the config of a component, which registries show without its layer."""
    return msgspec.json.encode(
        {
            "created": created,
            "architecture": "wasm",
            "os": "wasip2",
            "layerDigests": [layer_digest],
            "component": dict(component),
        }
    )


def new_manifest(config: bytes, layer: Descriptor, annotations: Mapping[str, str]) -> bytes:
    """Return the manifest of one layer; the same input gives the same bytes."""
    about = Descriptor(CONFIG_TYPE, digest_of(config), len(config))
    made = Manifest(about, (layer,), 2, MANIFEST_TYPE, dict(sorted(annotations.items())))
    return written_manifest(made)


def written_manifest(manifest: Manifest) -> bytes:
    """Return the bytes of a manifest."""
    # The version has a default, and yet has to be written.
    fields = {"schemaVersion": manifest.schema_version, **msgspec.to_builtins(manifest)}
    return msgspec.json.encode(fields)


def _check_descriptor(one: Descriptor, what: str) -> None:
    checked_digest(one.digest)
    if one.size < 0:
        raise DistributionError(f"{what}: its manifest gives a blob a negative size")
